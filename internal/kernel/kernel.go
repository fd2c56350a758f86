// Package kernel holds what data planes and those who drive them share about
// the kernel: its objects as people see them, and how to say that it lacks
// something.
package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
)

// Object is one thing in the kernel (or, for a plane without the kernel, in
// its place): a map element, a chain, a virtual server. The same objects serve
// dry-run, drift detection, golden tests and explaining.
type Object struct {
	Kind string // "chain", "element", "ipset", ... : the plane's own terms
	Name string // unique within the kind
	Text string // its content, in the words of the plane's usual tool
}

// SortObjects puts objects in the order that all planes show them in: by kind,
// name and text.
func SortObjects(list []Object) { slices.SortFunc(list, Object.Compare) }

// Compare is the order of SortObjects.
func (o Object) Compare(other Object) int {
	return cmp.Or(cmp.Compare(o.Kind, other.Kind), cmp.Compare(o.Name, other.Name), cmp.Compare(o.Text, other.Text))
}

// String gives the object on one line, or as a heading with lines below it.
func (o Object) String() string {
	if strings.Contains(o.Text, "\n") {
		return o.Kind + " " + o.Name + "\n" + o.Text
	}
	return strings.TrimRight(o.Kind+" "+o.Name+" "+o.Text, " ")
}

// MissingError says that this machine cannot do something: the kernel lacks a
// feature, or the process a privilege.
type MissingError struct {
	What  string // the feature or privilege: "nf_tables", "CAP_NET_ADMIN"
	Since string // the first kernel version that has it, "" if that's not the point
	Err   error  // what the kernel answered; may be nil
}

// Error names what is missing, since when it exists, and the kernel's answer.
func (e *MissingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "this machine lacks %s", e.What)
	if e.Since != "" {
		fmt.Fprintf(&b, " (in Linux since %s)", e.Since)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap gives the kernel's answer.
func (e *MissingError) Unwrap() error { return e.Err }

// IsMissing reports whether err is, or wraps, a MissingError.
func IsMissing(err error) bool {
	var missing *MissingError
	return errors.As(err, &missing)
}

// IsNotPermitted reports whether err is a MissingError for want of a right or a
// program of this process: what another process may have left can be there all
// the same, and can't be looked at.
func IsNotPermitted(err error) bool {
	return IsMissing(err) && (errors.Is(err, fs.ErrPermission) || errors.Is(err, exec.ErrNotFound))
}

// IsAbsent reports whether err is a MissingError that says that there is nothing to look
// at or to remove: not one for want of a right.
func IsAbsent(err error) bool { return IsMissing(err) && !errors.Is(err, fs.ErrPermission) }

// FullError says that a kernel object of a plane has no room for more, and
// can't be made larger. What was there goes on.
type FullError struct {
	What    string // the object: "eBPF map conns"
	LeftOut int    // how many things found no room
}

// Error names the object.
func (e *FullError) Error() string {
	return fmt.Sprintf("%s is full: there was no room for %d more", e.What, e.LeftOut)
}

// IsFull reports whether err is, or wraps, a FullError.
func IsFull(err error) bool {
	var full *FullError
	return errors.As(err, &full)
}

// Unsupported is something of the model that a plane does not do, or not on this
// machine, while it does the rest. Frontends and pools that ask for it get the
// nearest thing, and their owners an Event.
type Unsupported struct {
	Feature Feature
	Value   string // which one, where there are several: the scheduler's name
	Why     string // one sentence for people
}

// String names the feature, and which one of several.
func (u Unsupported) String() string { return strings.TrimRight(string(u.Feature)+" "+u.Value, " ") }

// Feature is a part of the model that not every plane can render.
type Feature string

// The features that a plane may not support.
const (
	Scheduling        Feature = "scheduler"              // Pool.Scheduler; Value names the one lacked
	Weights           Feature = "weights"                // Backend.Weight
	ClientAddress     Feature = "client address"         // backends see the client's address where the model doesn't masquerade; Value may be RemoteOnly
	LocalhostNodePort Feature = "node port on localhost" // frontends with a loopback address
	SCTPProtocol      Feature = "SCTP"
	ManyClients       Feature = "session affinity of many clients" // Pool.Affinity; Value is how many clients each backend has at most
	SilentDrop        Feature = "silent drop"                      // Drop and Sources: the plane refuses instead; Value may name a protocol
	// Hairpin: a pod that reaches itself may see its own address instead of one
	// of the node.
	Hairpin Feature = "masqueraded hairpin"
	// UnservedPorts: a packet to an address of a frontend, outside
	// Settings.Reserved, but to a port that no frontend has, passes.
	UnservedPorts Feature = "unserved ports of external addresses"
	// Handover: when the plane takes another one's place, or another (Value may name
	// the only one) its place,
	// established connections go on.
	Handover Feature = "handover"
	// SharedClientPort: connections that one client has open at the same time,
	// from one port of its own, by way of several frontends to the same backend.
	SharedClientPort Feature = "shared client port"
	// DirectReturn: Route.Direct. Planes without it masquerade, as the route
	// says beside.
	DirectReturn Feature = "direct server return"
	// StableFlows: Route.Stable. Planes without it reset a client whose connection
	// they don't know.
	StableFlows Feature = "stable flows"
	// NodeSockets: the plane chooses for sockets, but sees only some of the
	// node's; it does with packets what it would do for the others.
	NodeSockets Feature = "all of the node's sockets"
	// OrphanReset: Pool.Orphans other than OrphansKeep.
	OrphanReset Feature = "reset of connections whose endpoint is gone"
	// Network: Services are served on every network of a node; Value names the one where they
	// aren't, or not wholly. docs/reference/semantics.md has a row for each.
	Network Feature = "network of the node:"
)

// RemoteOnly, as the Value of an unsupported ClientAddress, says that backends which
// are pods on this node see the client's address, and others don't.
const RemoteOnly = "remote"
