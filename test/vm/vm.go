// Package vm runs tests in a small virtual machine whose kernel has what the
// kernel at hand lacks: IP_VS, SCTP, dummy interfaces, whatever Debian's cloud
// kernel has as a module.
//
//	func TestVirtualServers(t *testing.T) {
//		vm.With(t, func(t *testing.T) { ... }, "ip_vs")
//	}
//
// runs the function here if this kernel has IP_VS. If not, it boots the machine
// (once for all tests of a package), runs the very same test binary in it with
// -test.run for this very test, and makes the outcome its own.
//
// The machine needs the Debian packages qemu-system-x86, busybox-static and
// kmod, and downloads the kernel's package once (with apt-get, into the user's
// cache directory; nothing is installed). It needs no KVM, but uses it where it
// works. If something is missing, tests fail and say what; FAIRWAY_SKIP_VM=1
// skips them instead.
//
// FAIRWAY_VM=1 runs tests that could run here in the machine, too, and
// FAIRWAY_VM_KERNEL=bullseye gives it the kernel of that Debian release (5.10).
package vm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The environment variables of this package.
const (
	SkipEnv   = "FAIRWAY_SKIP_VM"   // "1" skips tests that need the machine
	AlwaysEnv = "FAIRWAY_VM"        // "1" has With use the machine whatever this kernel has
	KernelEnv = "FAIRWAY_VM_KERNEL" // the Debian release of the machine's kernel
	insideEnv = "FAIRWAY_IN_VM"     // set inside the machine
)

// Inside reports whether this process runs in the machine.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// With runs a test where the kernel has all the features (see Has): here, or in
// the machine.
func With(t *testing.T, test func(t *testing.T), features ...string) {
	t.Helper()
	lacking, err := lacks(features)
	if err != nil {
		t.Fatal(err)
	}
	always := os.Getenv(AlwaysEnv) == "1"
	switch {
	case len(lacking) == 0 && (Inside() || !always):
		test(t)
	case Inside():
		t.Fatalf("the kernel of the test machine, too, lacks %s", strings.Join(lacking, ", "))
	case os.Getenv(SkipEnv) == "1":
		t.Skipf("NOT TESTED: this kernel lacks %s, and %s=1 forbids the virtual machine", strings.Join(lacking, ", "), SkipEnv)
	case always:
		again(t, os.Getenv(KernelEnv), features)
	default:
		t.Logf("this kernel lacks %s: running in the virtual machine", strings.Join(lacking, ", "))
		again(t, os.Getenv(KernelEnv), features)
	}
}

// On runs a test in a machine with the kernel of a Debian release.
func On(t *testing.T, release string, test func(t *testing.T)) {
	t.Helper()
	switch {
	case Inside():
		test(t)
	case os.Getenv(SkipEnv) == "1":
		t.Skipf("NOT TESTED on the kernel of %s: %s=1 forbids the virtual machine", release, SkipEnv)
	default:
		again(t, release, nil)
	}
}

// Also runs a test here and in the machine, whose kernel is another one.
func Also(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	test(t)
	switch {
	case Inside():
	case os.Getenv(SkipEnv) == "1":
		t.Skipf("NOT TESTED on another kernel: %s=1 forbids the virtual machine", SkipEnv)
	default:
		again(t, os.Getenv(KernelEnv), nil)
	}
}

func lacks(features []string) ([]string, error) {
	var lacking []string
	for _, f := range features {
		has, err := Has(f)
		if err != nil {
			return nil, err
		}
		if !has {
			lacking = append(lacking, f)
		}
	}
	return lacking, nil
}

// atOnce is how many tests of a command run at a time, if they are parallel.
const atOnce = 3

// again runs the test in the machine with the kernel of a release.
func again(t *testing.T, release string, features []string) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		m, err := sharedMachine(release)
		if err != nil {
			t.Fatalf("start the virtual machine: %v", err)
		}
		t.Logf("in the virtual machine (%s)", m.Accel)
		failed := failures{out: t.Output()}
		code, err := m.Run(Command{Args: arguments(t), Modules: features, Output: &failed, Silence: outputTimeout})
		switch {
		case err == nil && code == 0:
			return
		case err == nil:
			t.Fatalf("failed in the virtual machine with exit code %d", code)
		case !errors.Is(err, ErrFrozen) || failed.any || attempt == attempts:
			t.Fatalf("run %s in the virtual machine: %v", t.Name(), err)
		}
		t.Logf("run %s in the virtual machine: %v\nonce more in another one", t.Name(), err)
		forget(release, m)
	}
}

// A machine that froze says nothing about what ran in it, so that is run again.
const (
	attempts      = 3
	outputTimeout = 8 * time.Minute // tests in it write something more often
)

// arguments are those of this test in the machine. Where it doesn't end, it says
// where it is, a little before this process has to.
func arguments(t *testing.T) []string {
	args := []string{"-test.v", "-test.run=" + runExpression(t.Name(), flagValue("test.run")), fmt.Sprintf("-test.parallel=%d", atOnce)}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprintf("-test.timeout=%s", max(time.Minute, time.Until(deadline)-time.Minute)))
	}
	return args
}

// failures passes output on, and notices whether a test has failed.
type failures struct {
	out io.Writer
	any bool
}

// Write takes whole lines.
func (f *failures) Write(b []byte) (int, error) {
	f.any = f.any || bytes.Contains(b, []byte("--- FAIL"))
	return f.out.Write(b)
}

// flagValue is what this process was started with.
func flagValue(name string) string {
	if f := flag.Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// runExpression matches exactly the test of this name, and of its subtests
// those that were asked for.
func runExpression(name, asked string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	if wanted := strings.Split(asked, "/"); len(wanted) > len(parts) && !strings.ContainsAny(asked, "|[(") {
		parts = append(parts, wanted[len(parts):]...)
	}
	return strings.Join(parts, "/")
}

// sharedMachines are those of this test process, one for each kernel. They end
// with it.
var sharedMachines struct {
	sync.Mutex
	of map[string]func() (*Machine, error)
}

func sharedMachine(release string) (*Machine, error) {
	sharedMachines.Lock()
	start := sharedMachines.of[release]
	if start == nil {
		start = sync.OnceValues(func() (*Machine, error) { return Start(Config{Kernel: release}) })
		if sharedMachines.of == nil {
			sharedMachines.of = map[string]func() (*Machine, error){}
		}
		sharedMachines.of[release] = start
	}
	sharedMachines.Unlock()
	return start()
}

// forget has others start a new machine instead of this one.
func forget(release string, frozen *Machine) {
	sharedMachines.Lock()
	defer sharedMachines.Unlock()
	if start := sharedMachines.of[release]; start != nil {
		if m, _ := start(); m == frozen {
			delete(sharedMachines.of, release)
		}
	}
}

// missingPrograms says which packages to install, nil if none.
func missingPrograms(look func(string) (string, error)) error {
	packages := map[string]string{
		"qemu-system-x86_64": "qemu-system-x86",
		"busybox":            "busybox-static",
		"depmod":             "kmod",
		"apt-get":            "apt",
		"dpkg":               "dpkg",
	}
	var missing []string
	for program, pkg := range packages {
		if _, err := look(program); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("install what the virtual machine needs: apt-get install %s", strings.Join(missing, " "))
}
