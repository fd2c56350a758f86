package doctor

import (
	"fmt"
	"slices"

	"github.com/fairway-net/fairway/diagnose/nearest"
)

// Around is what a cluster has beside Services that clients may be waiting for.
type Around struct {
	Classed []Classed
	// Classes are the names of the classes that are there, by the kind of what names them, and
	// Default whether Ingresses without a class have one.
	Classes map[string][]string
	Default bool
	// Pools are of all namespaces, and PoolNamespaces those in which they count.
	Pools          []Pool
	PoolNamespaces []string
	NotRead        []string // what couldn't be read, and why
}

// Classed is an Ingress or a Gateway, and the class that it names; "" for none.
type Classed struct{ Kind, Namespace, Name, Class string }

// Pool is an IPAddressPool or an advertisement.
type Pool struct{ Kind, Namespace, Name string }

// AddAround takes in what is wrong beside Services: FW132 and FW133.
func (s *Survey) AddAround(a *Around) {
	add := func(kind, namespace, name string, f Finding) {
		f.Fix = orElse(f.Fix, cause(f.Code).Fix)
		s.Found = append(s.Found, ServiceReport{fmt.Sprintf("%s %s/%s", kind, namespace, name), []Finding{f}})
	}
	for _, c := range a.Classed {
		if why := a.unserved(c); why != "" {
			add(c.Kind, c.Namespace, c.Name, Finding{Code: UnservedClass, Grade: Proved, What: why})
		}
	}
	for _, p := range a.Pools {
		if !slices.Contains(a.PoolNamespaces, p.Namespace) {
			add(p.Kind, p.Namespace, p.Name, Finding{Code: UnusedPool, Grade: Likely, What: fmt.Sprintf("it counts in namespace %s only", join(a.PoolNamespaces))})
		}
	}
	s.NotChecked = append(s.NotChecked, a.NotRead...)
}

// unserved says why nobody serves it; "" if its class is there, whoever serves that.
func (a *Around) unserved(c Classed) string {
	classes := a.Classes[c.Kind]
	switch {
	case c.Class == "" && a.Default:
		return ""
	case c.Class == "" && len(classes) == 0:
		return "it names no class, and there is none"
	case c.Class == "":
		return fmt.Sprintf("it names no class, and none is the default; there are %s", join(classes))
	case slices.Contains(classes, c.Class):
		return ""
	}
	what := fmt.Sprintf("there is no class %q", c.Class)
	if similar := nearest.Name(c.Class, classes); similar != "" {
		what += fmt.Sprintf("; did you mean %q?", similar)
	}
	return what
}
