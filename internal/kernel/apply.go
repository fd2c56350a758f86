package kernel

import (
	"errors"
	"fmt"

	"github.com/fairway-net/fairway/model"
)

// Verification says how much of the kernel an Apply compares with the table,
// instead of trusting what the plane remembers of the last Apply.
type Verification int

// What an Apply compares. The first Apply of a plane, and one after an error,
// compare everything in any case.
const (
	// VerifyNothing trusts the plane's memory: only what changed is written.
	VerifyNothing Verification = iota
	// VerifyRest compares what Query.Compare doesn't, which has just found that
	// all else agrees.
	VerifyRest
	// VerifyAll compares everything, and repairs what others broke.
	VerifyAll
)

// Result says what an Apply has reached. The zero value says: all of the table.
type Result struct {
	// LeftOut are the parts of the table that are not in force, and why. All
	// else is.
	LeftOut []LeftOut
	// Repaired says that comparing found the plane's rules cut off, which they
	// were not by this plane: planes say so that notice it no other way.
	Repaired bool
}

// LeftOut is a part of a table that an Apply could not put in force while it did
// the rest. The plane tries again with the next Apply that compares.
type LeftOut struct {
	// Frontend or Pool is the part; both are zero if it is not one of them, or
	// more than one.
	Frontend model.Key
	Pool     model.PoolID
	// Why says what happened, for people. It is the same text for as long as it
	// is the same fault. A *FullError means that a kernel object has no room.
	Why error
}

// Leave takes an error for something left out if it only says that a kernel
// object is full. All other errors come back.
func (r *Result) Leave(err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // looks at each of the joined errors
		var failed []error
		for _, e := range joined.Unwrap() {
			failed = append(failed, r.Leave(e))
		}
		return errors.Join(failed...)
	}
	if !IsFull(err) {
		return err
	}
	r.LeftOut = append(r.LeftOut, LeftOut{Why: err})
	return nil
}

// Add takes in another result.
func (r *Result) Add(o Result) { r.LeftOut = append(r.LeftOut, o.LeftOut...) }

// Err is for callers to whom anything left out is a failure; nil if nothing was.
func (r Result) Err() error {
	var list []error
	for _, l := range r.LeftOut {
		list = append(list, l)
	}
	return errors.Join(list...)
}

// Error says what is left out and why.
func (l LeftOut) Error() string {
	switch {
	case l.Frontend != model.Key{}:
		return fmt.Sprintf("%s is left out: %v", l.Frontend, l.Why)
	case l.Pool != model.PoolID{}:
		return fmt.Sprintf("pool %s is left out: %v", l.Pool, l.Why)
	}
	return l.Why.Error()
}

// Unwrap gives the reason.
func (l LeftOut) Unwrap() error { return l.Why }

// Removal says what becomes of connections when a plane is removed.
type Removal int

// How a plane can be removed.
const (
	// EndConnections ends those that pass through a process of the plane's own.
	EndConnections Removal = iota
	// HandOver is for when another plane is in force, which serves all of the
	// table: established connections go on. What serves them goes by itself
	// with the last of them.
	HandOver
)

// Preparation says what Plane.Prepare prepares for.
type Preparation int

// What a plane can prepare for.
const (
	// BeforeTable does the work of the first Apply that doesn't depend on the
	// table, while the table is in the making. It changes nothing for packets.
	BeforeTable Preparation = iota
	// LessPrivilege sets what takes more than CAP_NET_ADMIN or a writable
	// /proc/sys (kube-proxy's --init-only), so that the Apply of a process that
	// has no more finds it set.
	LessPrivilege
	// Alone takes in that this plane is in force and no other one is in the kernel
	// any more: what waited for that can go on.
	Alone
)

// VerifyIf is VerifyAll if everything shall be compared, and else VerifyNothing.
func VerifyIf(all bool) Verification {
	if all {
		return VerifyAll
	}
	return VerifyNothing
}
