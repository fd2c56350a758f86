package dataplane

import "context"

// Retirer is a plane whose connections end with it, because they pass through a
// process of its own and nothing of them is in the kernel.
type Retirer interface {
	// Retire gives up to another plane, which serves all of the table by now.
	// Connections that are established go on; with the last of them, what is
	// left of the plane goes by itself. Remove ends them.
	Retire(ctx context.Context) error
}

// Retire removes a plane in whose place another is in force: by Retire if it is
// a Retirer, else by Remove, which for all others loses no connection.
func Retire(ctx context.Context, p Plane) error {
	if r, ok := p.(Retirer); ok {
		return r.Retire(ctx)
	}
	return p.Remove(ctx)
}
