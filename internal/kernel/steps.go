package kernel

// Steps names the points between the changes that a plane makes in the kernel. A
// process may be killed at each of them, or a call may fail. Tests say which, by
// an error that ends what the plane was doing. Nobody else sets Reached.
type Steps struct {
	Reached func(name string) error
}

// At is called when a step is done.
func (s *Steps) At(name string) error {
	if s == nil || s.Reached == nil {
		return nil
	}
	return s.Reached(name)
}
