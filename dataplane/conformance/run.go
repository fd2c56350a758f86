package conformance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

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
	peer     *Process // nil while killed
	lacks    []kernel.Unsupported
	handover []kernel.Unsupported // of either plane, if the case switches
	declared map[string][]kernel.Unsupported
	flows    map[string]*flow
	loads    map[string]*load

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
	r := &Run{topo: s, kind: kind, first: kind, other: other, stateDir: stateDir, c: c, cluster: NewCluster(), flows: map[string]*flow{}, loads: map[string]*load{},
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
// over all of them.
func Tour(c *Case, s *Topology, stateDir string, kinds ...string) (*Run, error) {
	r, err := Play(c, s, kinds[0], kinds[1], stateDir)
	if err != nil {
		return r, fmt.Errorf("%s to %s: %w", kinds[0], kinds[1], err)
	}
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
	case "flow", "send", "close", "invalid", "bypasses":
		return r.flowStep(s)
	case "load", "unload":
		return r.loadStep(s)
	case "alike":
		return r.alike(s.Args)
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

// processStep does the steps that are about the plane's process and what it
// keeps in the kernel.
func (r *Run) processStep(s Step) error {
	if r.process == nil && s.Verb != "start" && s.Verb != "run" {
		return errors.New("the plane's process is not running")
	}
	switch s.Verb {
	case "pair":
		return r.pair()
	case "kill":
		return r.kill()
	case "start":
		return r.startAgain()
	case "restart":
		if err := r.kill(); err != nil {
			return err
		}
		return r.startAgain()
	case "switch":
		return r.changePlane()
	case "resync":
		return r.process.Apply(r.table, true)
	case "verify":
		return r.verify()
	case "run":
		return r.command(s.Args)
	case "repaired":
		return r.repaired()
	}
	return fmt.Errorf("no such step")
}

func (r *Run) kill() error {
	err := r.process.Kill()
	r.process = nil
	if r.peer != nil {
		err = errors.Join(err, r.peer.Kill())
		r.peer = nil
	}
	return err
}

func (r *Run) start() (err error) {
	if r.process, err = r.topo.Start(r.kind, r.stateDir); err != nil {
		return err
	}
	r.lacks = slices.Concat(withoutHandover(r.process.Unsupported), r.handover)
	if r.paired {
		return r.startPeer()
	}
	return nil
}

func (r *Run) startAgain() error {
	if r.process != nil {
		return errors.New("the plane's process is running")
	}
	if err := r.start(); err != nil {
		return err
	}
	return r.applyAll()
}

// changePlane does what an agent does that is started anew with another mode:
// the new plane takes over, then what the old one left is removed.
func (r *Run) changePlane() error {
	old := r.kind
	if err := r.kill(); err != nil {
		return err
	}
	r.kind = r.other
	if err := r.startAgain(); err != nil {
		return err
	}
	if planeOf(old) == planeOf(r.kind) {
		return nil // the new one has made of it what it wants
	}
	remover, err := r.topo.Start(old, r.stateDir)
	if err != nil {
		return err
	}
	if err := errors.Join(remover.Retire(), remover.Kill()); err != nil {
		return fmt.Errorf("remove %s: %w", old, err)
	}
	return nil
}

// planeOf is the plane of a kind that may have a variant.
func planeOf(kind string) string {
	plane, _, _ := strings.Cut(strings.TrimSuffix(kind, "@older"), "/")
	return plane
}

// awaitRetired waits until a plane that has given up to another is gone, which
// it may be only after its last connection: then its state is.
func (r *Run) awaitRetired() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		files, err := os.ReadDir(r.stateDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list the state of planes: %w", err)
		}
		if len(files) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after the last connection, %s has left %s in its state directory", r.first, files[0].Name())
		}
	}
}

func (r *Run) verify() error {
	difference, err := r.process.Compare()
	if err != nil {
		return err
	}
	if difference != "" {
		return fmt.Errorf("what Render wants (-) and what Objects finds (+) differ:\n%s", difference)
	}
	return r.calm()
}

// calm finds planes that take their own changes for those of others, which
// would have them compare with the kernel after every change.
func (r *Run) calm() error {
	drifts, err := r.process.Drifted()
	if err == nil && drifts > 0 && !r.disturbed {
		return errors.New("the plane said that somebody else changed its objects, but nobody did")
	}
	return err
}

// command runs a program in the node's namespace. The commands of iptables are
// those of the variant that the plane uses.
func (r *Run) command(args []string) error {
	r.disturbed = true
	var out strings.Builder
	program := args[0]
	if variant := r.topo.Variant; variant != "" && (program == "iptables" || program == "ip6tables") {
		program += "-" + string(variant)
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := r.topo.node.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// repaired waits for the plane to notice that somebody changed its objects,
// and has it repair them as the agent would.
func (r *Run) repaired() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		drifts, err := r.process.Drifted()
		if err != nil {
			return err
		}
		if drifts > 0 {
			break
		}
		if time.Now().After(deadline) {
			return errors.New("the plane did not notice that its objects were changed")
		}
	}
	if err := r.process.Apply(r.table, true); err != nil {
		return err
	}
	return r.verify()
}
