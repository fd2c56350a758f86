// Package change says what becomes of packets and requests when objects change. It is pure: the
// objects before and after go in, differences in the words of explain come out.
//
//	change.go     what goes in, what comes out, and its text
//	services.go   frontends, endpoints and findings of Services
//	announced.go  pools, and what nodes tell the network
//	requests.go   hosts, paths and routes
package change

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// World is what there is: before a change, or after it.
type World struct {
	Objects  *explain.Objects
	Requests *ingress.Objects
	// Announced are the pools and advertisements that count.
	Announced announce.Objects
	// Pools are those of all namespaces, and PoolNamespaces those in which they count.
	Pools          []doctor.Pool
	PoolNamespaces []string
}

// Input is what is compared.
type Input struct {
	Before, After World
	Compile       compile.Config
	// Addresses and Ports name those that nobody has yet: what the server will choose.
	Addresses map[netip.Addr]string
	Ports     map[uint16]string
}

// Refused is an object that the server would not take, or that can't be read.
type Refused struct {
	Object string `json:"object"` // "Service default/web"
	At     string `json:"at,omitempty"`
	Reason string `json:"reason"` // with the field, where one is at fault
}

// Report is what a change does.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // "Difference"
	Changes    []Change  `json:"changes"`
	Refused    []Refused `json:"refused,omitempty"`
	NotChecked []string  `json:"notChecked,omitempty"`
}

// Change is what is different of one object.
type Change struct {
	Object string `json:"object"`
	Lines  []Line `json:"lines"`
}

// The kinds of lines.
const (
	Appears = "+"
	Goes    = "-"
	Changes = "~"
	Wrong   = "!" // what doctor or the compiler finds after the change, and didn't before
)

// Line is one difference.
type Line struct {
	Kind string `json:"kind"`
	What string `json:"what"`
}

// Compare says what is different.
func Compare(ctx context.Context, in Input) (*Report, error) {
	r := &Report{APIVersion: explain.SchemaVersion, Kind: "Difference"}
	services, err := in.services(ctx)
	if err != nil {
		return nil, err
	}
	r.Changes = together(services, in.announced(), in.requests())
	return r, nil
}

// IsNone reports whether nothing changes and nothing is refused.
func (r *Report) IsNone() bool { return len(r.Changes)+len(r.Refused) == 0 }

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	for _, c := range r.Changes {
		fmt.Fprintf(&b, "%s\n", c.Object)
		for _, l := range c.Lines {
			fmt.Fprintf(&b, "  %s %s\n", l.Kind, l.What)
		}
	}
	for _, one := range r.Refused {
		at := ""
		if one.At != "" {
			at = " (" + one.At + ")"
		}
		fmt.Fprintf(&b, "%s%s\n  REFUSED: %s\n", one.Object, at, one.Reason)
	}
	for _, n := range r.NotChecked {
		fmt.Fprintf(&b, "not checked  %s\n", n)
	}
	if r.IsNone() {
		b.WriteString("no packet and no request goes elsewhere\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
