package ipvs

// fault is what a test has the next call of the kernel end with; nil, or no error,
// lets it go on.
type fault func() error

func (f fault) next() error {
	if f == nil {
		return nil
	}
	return f()
}
