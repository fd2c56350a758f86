package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// capableVariable has the test binary play the agents of TestCapabilities; its value is
// the node's cgroup.
const capableVariable = "FAIRWAY_TEST_CAPABLE"

// TestCapabilities runs a plane with the capabilities that deploy/ebpf gives and no others:
// it applies, grows its maps, and is succeeded by other processes, which find all of it
// again and go on.
func TestCapabilities(t *testing.T) {
	if cgroup := os.Getenv(capableVariable); cgroup != "" {
		playRestarts(t, kernel.Options{Cgroup: cgroup, StateDir: t.TempDir()})
		return
	}
	inNode(t, func(t *testing.T, options kernel.Options) {
		if out, err := playedWith(t, shippedCapabilities(t), capableVariable+"="+options.Cgroup); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// tracesVariable has the test binary say what a process sees without rights.
const tracesVariable = "FAIRWAY_TEST_TRACES"

// TestTraces: a process with the capabilities of the other modes' agents, which can't
// start this one, knows whether it may have left something.
func TestTraces(t *testing.T) {
	if want := os.Getenv(tracesVariable); want != "" {
		if _, err := New(kernel.Options{StateDir: t.TempDir()}); !kernel.IsNotPermitted(err) {
			t.Errorf("the mode starts: %v", err)
		}
		if got := strconv.FormatBool(Traces()); got != want {
			t.Errorf("traces: %s, want %s", got, want)
		}
		return
	}
	inNode(t, func(t *testing.T, options kernel.Options) {
		look := func(want string) {
			t.Helper()
			if out, err := playedWith(t, []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW}, tracesVariable+"="+want); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
		look("false")
		p := newPlane(t, options)
		if result, err := p.Apply(t.Context(), webTable(10, 3), kernel.VerifyAll); err != nil || result.Err() != nil {
			t.Fatal(err, result.Err())
		}
		look("true")
		if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		look("false")
	})
}

// aheadVariable has the test binary say who is before the mode's programs.
const aheadVariable = "FAIRWAY_TEST_AHEAD"

// TestAhead: with the capabilities that deploy/ebpf gives, which aren't enough to read the
// names of programs, one of somebody else's that sees packets first is known by its number.
func TestAhead(t *testing.T) {
	if want := os.Getenv(aheadVariable); want != "" {
		if found, err := Ahead(); err != nil || fmt.Sprint(found) != want {
			t.Errorf("ahead are %q, %v; want %q", found, err, want)
		}
		return
	}
	inNode(t, func(t *testing.T, options kernel.Options) {
		p := newPlane(t, options)
		if result, err := p.Apply(t.Context(), webTable(10, 3), kernel.VerifyAll); err != nil || result.Err() != nil {
			t.Fatal(err, result.Err())
		}
		look := func(want string) {
			t.Helper()
			if out, err := playedWith(t, shippedCapabilities(t), aheadVariable+"="+want); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
		look("[]")
		theirs, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "theirs", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, -1), asm.Return(), // TCX_NEXT
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		first, err := link.AttachTCX(link.TCXOptions{Interface: 1, Program: theirs, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		info, err := theirs.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		look(fmt.Sprintf("[program %d at lo egress]", id))
		if found, err := Ahead(); err != nil || fmt.Sprint(found) != "[theirs at lo egress]" {
			t.Errorf("with all rights, ahead are %q, %v", found, err)
		}
	})
}

// playedWith runs the test again in the same network namespace, in a process that has some
// capabilities only, and a variable.
func playedWith(t *testing.T, capabilities []uintptr, variable string) (out []byte, err error) {
	t.Helper()
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	name, _, _ := strings.Cut(t.Name(), "/")
	command := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.v")
	command.Env = append(os.Environ(), variable)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err = errors.Join(err, dropAllBut(capabilities)); err == nil {
			out, err = command.CombinedOutput()
		}
		done <- err
	}()
	if err = <-done; err == nil && !strings.Contains(string(out), "--- PASS: "+name) {
		err = errors.New("the test was not played")
	}
	return out, err
}

// shippedCapabilities are those that the manifest names.
func shippedCapabilities(t *testing.T) []uintptr {
	t.Helper()
	text, err := os.ReadFile("../../deploy/ebpf/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`add: \[(.*)\]`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the manifest names no capabilities")
	}
	numbers := map[string]uintptr{"NET_ADMIN": unix.CAP_NET_ADMIN, "NET_RAW": unix.CAP_NET_RAW, "BPF": unix.CAP_BPF, "PERFMON": unix.CAP_PERFMON}
	var keep []uintptr
	for name := range strings.SplitSeq(string(list[1]), ", ") {
		number, known := numbers[name]
		if !known {
			t.Fatalf("capability %q isn't known here", name)
		}
		keep = append(keep, number)
	}
	return keep
}

// dropAllBut leaves the programs that the thread starts some capabilities.
func dropAllBut(keep []uintptr) error {
	for number := uintptr(0); number <= unix.CAP_LAST_CAP; number++ {
		if slices.Contains(keep, number) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}

// playRestarts is one agent after another.
func playRestarts(t *testing.T, options kernel.Options) {
	ctx := context.Background()
	var p *Plane
	ids := map[model.Key]uint32{}
	for n, want := range []*model.Table{webTable(10, 3), webTable(12, 2), webTable(3000, 2), webTable(40, 2)} {
		p = newPlane(t, options)
		for _, verify := range []kernel.Verification{kernel.VerifyNothing, kernel.VerifyAll} {
			if result, err := p.Apply(ctx, want, verify); err != nil || result.Err() != nil {
				t.Fatalf("process %d: %v, %v", n, err, result.Err())
			}
		}
		agrees(t, p, want)
		for f := range want.Frontends() {
			id := p.state.FrontendID(f.Key)
			if before, known := ids[f.Key]; known && before != id {
				t.Errorf("process %d: frontend %s had id %d and has %d", n, f.Key, before, id)
			}
			if n == 0 {
				ids[f.Key] = id
			}
		}
		if _, err := p.Read(ctx, kernel.Query{Frontends: true, Backends: want, Drops: true, Strays: true, Maps: true}); err != nil {
			t.Errorf("process %d: %v", n, err)
		}
		if err := p.store.Grow(); err != nil {
			t.Error(err)
		}
		if n < 3 {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Remove(ctx, kernel.EndConnections); err != nil {
		t.Error(err)
	}
}
