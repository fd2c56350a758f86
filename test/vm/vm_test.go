package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// TestWith: a test that this kernel can't run runs in the machine.
func TestWith(t *testing.T) {
	for _, feature := range []string{"ip_vs", "sctp", "dummy"} {
		t.Run(feature, func(t *testing.T) {
			With(t, func(t *testing.T) {
				has, err := Has(feature)
				if err != nil || !has {
					t.Errorf("has %s: %v, %v", feature, has, err)
				}
				if text, err := os.ReadFile("testdata/hello"); err != nil || strings.TrimSpace(string(text)) != "hello" {
					t.Errorf("testdata: %q, %v", text, err)
				}
			}, feature)
		})
	}
}

// TestPrograms: the programs that the host has work in the machine.
func TestPrograms(t *testing.T) {
	if !Inside() {
		runInside(t, 0)
		return
	}
	for _, command := range [][]string{
		{"ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"},
		{"nft", "add", "table", "inet", "x"},
		{"iptables-nft", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-m", "comment", "--comment", "x", "-j", "ACCEPT"},
		{"iptables-legacy", "-t", "nat", "-A", "OUTPUT", "-m", "statistic", "--mode", "random", "--probability", "0.5", "-j", "ACCEPT"},
		{"ip6tables-legacy-save"},
		{"ipset", "create", "x", "hash:ip,port"},
		{"ipvsadm", "-A", "-t", "10.96.0.1:80", "-s", "mh"},
		{"conntrack", "-L"},
		{"tc", "qdisc", "show"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", strings.Join(command, " "), err, out)
		}
	}
}

// TestFailureIsOurs: a test that fails in the machine fails here.
func TestFailureIsOurs(t *testing.T) {
	if !Inside() {
		runInside(t, 1)
		return
	}
	t.Error("on purpose")
}

// runInside runs the test of this name in the machine and expects its exit code.
func runInside(t *testing.T, want int) {
	t.Helper()
	if os.Getenv(SkipEnv) == "1" {
		t.Skipf("NOT TESTED: %s=1 forbids the virtual machine", SkipEnv)
	}
	m, err := sharedMachine("")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	code, err := m.Run(Command{Args: []string{"-test.v", "-test.run=" + runExpression(t.Name(), "")}, Modules: []string{"ip_vs"}, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	if code != want {
		t.Errorf("exit code %d, expected %d:\n%s", code, want, out.String())
	}
	if want != 0 && !strings.Contains(out.String(), "on purpose") {
		t.Errorf("output: %s", out.String())
	}
}

// TestSeveralAtATime: a command needn't wait for another to end.
func TestSeveralAtATime(t *testing.T) {
	if os.Getenv(SkipEnv) == "1" {
		t.Skipf("NOT TESTED: %s=1 forbids the virtual machine", SkipEnv)
	}
	if Inside() { // the one waits for what the other makes
		meet := "/tmp/met-" + os.Getenv("FAIRWAY_MEET")
		if err := os.WriteFile(meet, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for range wait.Tries(time.Minute) {
			if met, err := filepath.Glob("/tmp/met-*"); err == nil && len(met) == commands {
				return
			}
		}
		t.Fatal("no other command came")
	}
	m, err := sharedMachine("")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range commands {
		all.Go(func() {
			code, err := m.Run(Command{Args: []string{"-test.run=^TestSeveralAtATime$"}, Env: []string{fmt.Sprintf("FAIRWAY_MEET=%d", n)}})
			if err != nil || code != 0 {
				t.Errorf("command %d: exit code %d, %v", n, code, err)
			}
		})
	}
	all.Wait()
}

// TestAccelerators: KVM is tried only where it can work, or if one says so.
func TestAccelerators(t *testing.T) {
	dir := t.TempDir()
	device := filepath.Join(dir, "kvm")
	if reason := noKVM(device, dir); !strings.Contains(reason, "no such file") {
		t.Errorf("without a device: %q", reason)
	}
	if err := os.WriteFile(device, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if reason := noKVM(device, dir); !strings.Contains(reason, "kvm_amd") {
		t.Errorf("without a module: %q", reason)
	}
	if err := os.Mkdir(filepath.Join(dir, "kvm_intel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if reason := noKVM(device, dir); reason != "" {
		t.Errorf("with both: %q", reason)
	}
	for setting, want := range map[string]string{"tcg": "tcg", "kvm": "kvm"} {
		ways, _, err := accelerators(setting)
		if err != nil || ways[0].name != want || ways[len(ways)-1].name != "tcg" {
			t.Errorf("%s: %v, %v", setting, ways, err)
		}
	}
	if _, _, err := accelerators("xen"); err == nil || !strings.Contains(err.Error(), AccelEnv) {
		t.Errorf("xen: %v", err)
	}
}

// TestReleaseName: what isn't the name of a release never reaches apt.
func TestReleaseName(t *testing.T) {
	if err := download(t.TempDir(), "../bullseye"); err == nil || !strings.Contains(err.Error(), "Debian release") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownFeature(t *testing.T) {
	if _, err := Has("time_travel"); err == nil || !strings.Contains(err.Error(), "ip_vs") {
		t.Errorf("error %v does not say which features there are", err)
	}
}

func TestMissingPrograms(t *testing.T) {
	err := missingPrograms(func(program string) (string, error) {
		if program == "busybox" || program == "depmod" {
			return "", fs.ErrNotExist
		}
		return "/usr/bin/" + program, nil
	})
	if err == nil || !strings.Contains(err.Error(), "apt-get install busybox-static kmod") {
		t.Errorf("error %v does not say what to install", err)
	}
}

func TestFindKernel(t *testing.T) {
	if _, err := findKernel(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an empty directory: %v", err)
	}
}

func TestRunExpression(t *testing.T) {
	for _, c := range []struct{ name, asked, want string }{
		{"TestA/b.c/d", "", `^TestA$/^b\.c$/^d$`},
		{"TestA/b", "TestA/b", `^TestA$/^b$`},
		{"TestA/b", "TestA/b/c", `^TestA$/^b$/c`},
		{"TestA/b", "TestA/b/c|TestB", `^TestA$/^b$`},
	} {
		if got := runExpression(c.name, c.asked); got != c.want {
			t.Errorf("%s, asked for %q: %s, expected %s", c.name, c.asked, got, c.want)
		}
	}
}
