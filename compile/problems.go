package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// The reasons of problems, which Events about a Service carry.
const (
	// ReasonInvalid: a field or annotation can't be read and is left out.
	ReasonInvalid = "InvalidValue"
	// ReasonConflict: another Service has the address and port.
	ReasonConflict = "AddressConflict"
	// ReasonEndpoint: an endpoint or port of a slice is left out.
	ReasonEndpoint = "InvalidEndpoint"
	// ReasonOpen: source ranges are given, but none of an address's family: the address is
	// open to everybody.
	ReasonOpen = "SourceRangesIncomplete"
)

// Problem says what of a Service or of its EndpointSlices the compiled table doesn't carry
// out as written, and why.
type Problem struct {
	Service types.NamespacedName
	Reason  string
	Message string
}

func (p *spec) problem(reason, format string, args ...any) {
	p.problems = append(p.problems, Problem{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// Problems lists the problems of the last table, by Service.
func (c *Compiler) Problems() []Problem {
	var list []Problem
	for _, svc := range c.services {
		list = append(list, svc.problems...)
	}
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(compareNames(a.Service, b.Service), strings.Compare(a.Message, b.Message))
	})
	return list
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// NewProblems lists the problems that have arisen since it was last called, and
// costs nothing if there are none: for telling the author of the Service once.
func (c *Compiler) NewProblems() []Problem {
	list := c.fresh
	c.fresh = nil
	return list
}

// markConflicted has the problems of a Service looked at again, once all Services are
// compiled.
func (c *Compiler) markConflicted(svc *service) {
	if !svc.conflicted {
		svc.conflicted = true
		c.conflicted = append(c.conflicted, svc)
	}
}

func (c *Compiler) reportConflicts() {
	for _, svc := range c.conflicted {
		svc.conflicted = false
		c.report(svc)
	}
	clear(c.conflicted)
	c.conflicted = c.conflicted[:0]
}

// report brings the problems of a Service up to date and notes the new ones.
func (c *Compiler) report(svc *service) {
	before := svc.problems
	svc.problems = nil
	if svc.spec == nil {
		return
	}
	for _, p := range svc.spec.problems {
		svc.problems = append(svc.problems, Problem{svc.key, p.Reason, p.Message})
	}
	for _, s := range svc.slices {
		if s.problem != "" {
			svc.problems = append(svc.problems, Problem{svc.key, ReasonEndpoint, s.problem})
		}
	}
	for _, f := range svc.frontends {
		for _, k := range c.overlapping(f.Key) {
			if winner := c.winner(k); winner.svc != svc {
				svc.problems = append(svc.problems, Problem{svc.key, ReasonConflict, fmt.Sprintf(
					"%s (%s of %s) is not served for this Service: it is the %s of %s",
					k, f.FrontendType, f.Name, winner.front.FrontendType, winner.front.Name)})
			}
		}
	}
	for _, p := range svc.problems {
		if !slices.Contains(before, p) {
			c.fresh = append(c.fresh, p)
		}
	}
}
