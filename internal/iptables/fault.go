package iptables

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

type faultKey struct{}

// WithFault has commands fail that run with the context, for tests of what calls them:
// fault is asked before each, and an error is what the command ends with.
func WithFault(ctx context.Context, fault func() error) context.Context {
	return context.WithValue(ctx, faultKey{}, fault)
}

// faultOf is what a test has the next command end with: an error, and the words that go
// with it.
func faultOf(ctx context.Context, program string) (stderr []byte, err error) {
	fault, ok := ctx.Value(faultKey{}).(func() error)
	if !ok {
		return nil, nil
	}
	err = fault()
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, unix.EPERM):
		return fmt.Appendf(nil, "%s: Could not fetch rule set generation id: Permission denied (you must be root)", program), err
	}
	return fmt.Appendf(nil, "%s: %v", program, err), err
}
