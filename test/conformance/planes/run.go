package planes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Run plays one case with one plane, or, without a topology, only holds what the
// case expects against the specification.
type Run struct {
	// Exceptions are the steps that were weakened or left out because the plane
	// declares that it lacks something.
	Exceptions []string

	topo     *Topology
	kind     string // the plane at work
	first    string // the plane that began
	other    string // the plane to switch to, if the case does that
	stateDir string
	c        *Case
	cluster  *Cluster
	table    *model.Table
	process  *Process // nil while killed, and without a topology
	paired   bool     // the plane is on peer too:
	moved    bool     // the client's packets come in there
	peer     *Process // nil while killed
	lacks    []kernel.Unsupported
	handover []kernel.Unsupported // of either plane, if the case switches
	declared map[string][]kernel.Unsupported
	flows    map[string]*flow
	loads    map[string]*load
	beyond   map[string]bool // flows and loads that the site's node has no address for

	foreign   bool // what is at work isn't a plane of Fairway's (TestKubeProxy)
	disturbed bool // commands were run, which may have changed the plane's objects
}

// Specify plays a case without packets: every expectation must be what
// model.Decide says.
func Specify(c *Case) error {
	r := &Run{c: c, cluster: NewCluster(), flows: map[string]*flow{}, loads: map[string]*load{}}
	return r.steps()
}

// Play plays a case on a topology with the plane of the given name, and leaves
// the plane's process and kernel objects for Finish. If the case switches to
// another plane, that's the other one.
func Play(c *Case, s *Topology, kind, other, stateDir string) (*Run, error) {
	r := &Run{topo: s, kind: kind, first: kind, other: other, stateDir: stateDir, c: c, cluster: s.newCluster(), flows: map[string]*flow{}, loads: map[string]*load{},
		declared: map[string][]kernel.Unsupported{}}
	if other != "" {
		if err := r.changes(kind, other); err != nil {
			return r, err
		}
	}
	if err := r.start(); err != nil {
		return r, err
	}
	return r, r.steps()
}

// Tour plays a case that switches with one plane after the other, so that each takes
// the place of the one before. Some connections that the first has made are kept
// over all of them. done is called after each change: a tour takes minutes in a virtual
// machine, which is taken for frozen when it says nothing for long.
func Tour(c *Case, s *Topology, stateDir string, done func(change string), kinds ...string) (*Run, error) {
	r, err := Play(c, s, kinds[0], kinds[1], stateDir)
	if err != nil {
		return r, fmt.Errorf("%s to %s: %w", kinds[0], kinds[1], err)
	}
	done(kinds[0] + " to " + kinds[1])
	kept := r.flows
	for i, next := range kinds[2:] {
		r.flows, r.other = map[string]*flow{}, next
		err := r.changes(kinds[i+1], next)
		r.lacks = slices.Concat(withoutHandover(r.process.Unsupported), r.handover)
		if err == nil {
			err = r.steps()
		}
		if err == nil {
			err = r.goOn(kept)
		}
		if err := errors.Join(err, r.closeFlows()); err != nil {
			r.flows = kept
			return r, fmt.Errorf("change %d, %s to %s: %w", i+2, kinds[i+1], next, err)
		}
		done(kinds[i+1] + " to " + next)
	}
	r.flows = kept
	return r, nil
}

// goOn says something over the TCP connections of an earlier leg.
func (r *Run) goOn(kept map[string]*flow) error {
	for name, f := range kept {
		if f.probe.Proto != model.TCP {
			continue
		}
		if err := r.send(f, Step{Expect: &Expectation{Outcome: Same}}); err != nil {
			return fmt.Errorf("flow %s of the first plane: %w", name, err)
		}
	}
	return nil
}

func (r *Run) steps() error {
	if err := r.program(); err != nil {
		return fmt.Errorf("empty table: %w", err)
	}
	for _, s := range r.c.Steps {
		if r.skips(s) {
			continue
		}
		if err := r.step(s); err != nil {
			return fmt.Errorf("%s.txtar:%d: %s: %w", r.c.Name, s.Line, s.Text, err)
		}
	}
	return nil
}

// skips tells whether the step's conditions rule it out, and lists it as an
// exception if the plane's lacks are why.
func (r *Run) skips(s Step) bool {
	if r.topo == nil {
		return false
	}
	if r.beyondSite(s) {
		return true
	}
	for _, c := range s.Conditions {
		if c.Plane != "" && (c.Plane == r.kind) == c.Not {
			return true
		}
		if c.Needs == "" {
			continue
		}
		if lack := r.lack(c.Needs, c.Value); lack != nil {
			r.except(s, lack, "left out")
			return true
		}
	}
	return false
}

func (r *Run) lack(f kernel.Feature, value string) *kernel.Unsupported {
	return lackOf(r.lacks, f, value)
}

func (r *Run) except(s Step, l *kernel.Unsupported, how string) {
	r.Exceptions = append(r.Exceptions, fmt.Sprintf("%s.txtar:%d: %s: %s: %s lacks %s %s: %s",
		r.c.Name, s.Line, s.Text, how, r.kind, l.Feature, l.Value, l.Why))
}

func (r *Run) step(s Step) error {
	switch s.Verb {
	case "config":
		return r.change(r.cluster.Configure(s.Args))
	case "node":
		return r.change(r.cluster.SetNode(s.Args))
	case "apply":
		for _, name := range s.Args {
			if err := r.cluster.Apply(r.c.Files[name]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return r.program()
	case "endpoints":
		slice, err := parseEndpoints(s.Args)
		if err != nil {
			return err
		}
		r.cluster.setSlice(slice)
		return r.program()
	case "delete":
		return r.change(r.cluster.Delete(s.Args[0], s.Args[1]))
	case "probe":
		return r.probe(s)
	case "forgets":
		return r.forgets(s)
	case "flow", "send", "close", "invalid", "bypasses", "large":
		return r.flowStep(s)
	case "load", "unload":
		return r.loadStep(s)
	case "alike":
		return r.alike(s.Args)
	case "via":
		return r.via(s.Args[0])
	}
	if r.topo == nil {
		return nil
	}
	return r.processStep(s)
}

func (r *Run) change(err error) error {
	if err != nil {
		return err
	}
	return r.program()
}

// program compiles and has the plane apply the outcome.
func (r *Run) program() (err error) {
	if r.table, err = r.cluster.Table(); err != nil {
		return err
	}
	if r.process == nil {
		return nil
	}
	return r.applyAll()
}

// translators are the planes that translate in netfilter.
var translators = []string{"nftables", "iptables", "ipvs"}

// beyondSite reports whether a step is about packets that the site's network can't have:
// of a family that the node doesn't have, or back to the port of a bridge.
func (r *Run) beyondSite(s Step) bool {
	site := r.topo.site
	if site == nil {
		return false
	}
	opens := s.Verb == "flow" || s.Verb == "load"
	at := map[string]int{"probe": 0, "flow": 1, "load": 1, "alike": 0, "forgets": 1}
	i, has := at[s.Verb]
	if !has {
		if site.Ahead && s.Verb == "verify" && r.kind == "ebpf" {
			return true
		}
		return slices.Contains([]string{"send", "close", "invalid", "bypasses", "large", "unload"}, s.Verb) && r.beyond[s.Args[0]]
	}
	to, err := parseDestination(s.Args[i+2])
	if err != nil {
		return false
	}
	self := s.Expect != nil && slices.ContainsFunc(s.Expect.Backends, func(b string) bool { return matches(s.Args[i], b+":") })
	if !site.lacksFamily(to.Addr()) && (!site.OneWay || !self || !slices.Contains(translators, planeOf(r.kind))) {
		return false
	}
	if opens {
		if r.beyond == nil {
			r.beyond = map[string]bool{}
		}
		r.beyond[s.Args[0]] = true
	}
	r.Exceptions = append(r.Exceptions, fmt.Sprintf("%s.txtar:%d: %s: left out: not on site %s", r.c.Name, s.Line, s.Text, site.Name))
	return true
}
