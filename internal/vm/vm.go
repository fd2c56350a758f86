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
// cache directory; nothing is installed). It needs no KVM. If
// something is missing, tests fail and say what; FAIRWAY_SKIP_VM=1 skips them
// instead.
package vm

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The environment variables of this package.
const (
	SkipEnv   = "FAIRWAY_SKIP_VM" // "1" skips tests that need the machine
	insideEnv = "FAIRWAY_IN_VM"   // set inside the machine
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
	switch {
	case len(lacking) == 0:
		test(t)
	case Inside():
		t.Fatalf("the kernel of the test machine, too, lacks %s", strings.Join(lacking, ", "))
	case os.Getenv(SkipEnv) == "1":
		t.Skipf("NOT TESTED: this kernel lacks %s, and %s=1 forbids the virtual machine", strings.Join(lacking, ", "), SkipEnv)
	default:
		t.Logf("this kernel lacks %s: running in the virtual machine", strings.Join(lacking, ", "))
		again(t, features)
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
		again(t, nil)
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

// again runs the test in the machine.
func again(t *testing.T, features []string) {
	t.Helper()
	m, err := sharedMachine()
	if err != nil {
		t.Fatalf("start the virtual machine: %v", err)
	}
	args := []string{"-test.v", "-test.run=" + runExpression(t.Name(), asked())}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	code, err := m.Run(Command{Args: args, Modules: features, Output: t.Output()})
	if err != nil {
		t.Fatalf("run %s in the virtual machine: %v", t.Name(), err)
	}
	if code != 0 {
		t.Fatalf("failed in the virtual machine with exit code %d", code)
	}
}

// asked is the -test.run that this process was started with.
func asked() string {
	if f := flag.Lookup("test.run"); f != nil {
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

var shared struct {
	sync.Mutex
	machine *Machine
	err     error
}

// sharedMachine is the one machine of this test process. It ends with it.
func sharedMachine() (*Machine, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.machine == nil && shared.err == nil {
		shared.machine, shared.err = Start(Config{})
	}
	return shared.machine, shared.err
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
