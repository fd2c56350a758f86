package planes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

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
	case "disturb":
		return r.topo.disturb()
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
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
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
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(10 * time.Millisecond) {
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
