package netns_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

func TestNamed(t *testing.T) {
	name := fmt.Sprintf("fairway-test-%d", os.Getpid())
	ns, err := netns.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Remove(name); err != nil {
			t.Error(err)
		}
	})
	if _, err := netns.Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("creating it twice: %v, want fs.ErrExist", err)
	}
	names, err := netns.Names("fairway-test-")
	if err != nil || !slices.Contains(names, name) {
		t.Errorf("Names: %v, %v; want %s among them", names, err, name)
	}
	again, err := netns.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if again.ID() != ns.ID() {
		t.Errorf("opened %s, created %s", again.ID(), ns.ID())
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := ns.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := netns.Open(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opening a removed one: %v, want fs.ErrNotExist", err)
	}
	if err := netns.Remove(name); err != nil {
		t.Errorf("removing it twice: %v", err)
	}
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", strings.Repeat("x", 300)} {
		if _, err := netns.Create(name); err == nil {
			t.Errorf("Create(%q) succeeded", name)
		}
		if err := netns.Remove(name); err == nil {
			t.Errorf("Remove(%q) succeeded", name)
		}
	}
}

func TestRemoveLeftOverFile(t *testing.T) {
	if err := os.MkdirAll(netns.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("fairway-test-stale-%d", os.Getpid())
	if err := os.WriteFile(filepath.Join(netns.Dir, name), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := netns.Remove(name); err != nil {
		t.Error(err)
	}
}

func TestDo(t *testing.T) {
	home := currentID(t)
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var links []net.Interface
	sentinel := errors.New("passed on")
	err = ns.Do(func() error {
		links, err = net.Interfaces()
		if err != nil {
			return err
		}
		return sentinel
	})
	if !errors.Is(err, sentinel) {
		t.Errorf("Do: %v, want the function's own error", err)
	}
	if len(links) == 0 || slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name == "eth0" }) {
		t.Errorf("links inside: %v", links)
	}
	if id := currentID(t); id != home {
		t.Errorf("the caller is in %s now, was in %s", id, home)
	}
	if err := ns.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("Do of a function that ends its goroutine succeeded")
	}
}

func TestStart(t *testing.T) {
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	var out strings.Builder
	cmd := exec.Command("/bin/sh", "-c", "readlink /proc/self/ns/net")
	cmd.Stdout = &out
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	inside := ""
	if err := ns.Do(func() error {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != inside {
		t.Errorf("child ran in %s, want %s", got, inside)
	}
}

// TestStartWith checks that a command finds another file, and nobody else does.
func TestStartWith(t *testing.T) {
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	dir := t.TempDir()
	path, theirs := filepath.Join(dir, "everybody's"), filepath.Join(dir, "theirs")
	for _, p := range []string{path, theirs} {
		if err := os.WriteFile(p, []byte(filepath.Base(p)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	cmd := exec.Command("/bin/sh", "-c", `cat "$0"; readlink /proc/self/ns/net`, path)
	cmd.Stdout = &out
	if err := ns.StartWith(cmd, map[string]string{path: theirs, filepath.Join(dir, "nobody's"): theirs}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var home string
	err = ns.Do(func() error { home, err = os.Readlink("/proc/thread-self/ns/net"); return err })
	if want := "theirs" + home; err != nil || strings.TrimSpace(out.String()) != want {
		t.Errorf("the command found %q, want %q (%v)", out.String(), want, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "everybody's" {
		t.Errorf("everybody finds %q (%v) now", text, err)
	}
}

// TestStartAs checks that a command has a host name of its own, and nobody else.
func TestStartAs(t *testing.T) {
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	before, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.Command("/bin/sh", "-c", "cat /proc/sys/kernel/hostname")
	cmd.Stdout = &out
	if err := ns.StartAs(cmd, "its-own", nil); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if out.String() != "its-own\n" {
		t.Errorf("the command's host is %q", out.String())
	}
	if after, err := os.Hostname(); err != nil || after != before {
		t.Errorf("our host is %q now (%v), was %q", after, err, before)
	}
}

func TestNetlink(t *testing.T) {
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if lo.Attrs().Flags&net.FlagUp != 0 {
		t.Error("the handle sees the host's loopback, which is up")
	}
}

func currentID(t *testing.T) string {
	t.Helper()
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	return ns.ID()
}

// TestBesideIproute2: namespaces stay reachable when iproute2 makes its first one, and nothing is
// left of them afterwards.
func TestBesideIproute2(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and iproute2")
	}
	const inside = "FAIRWAY_TEST_OWN_MOUNTS"
	if os.Getenv(inside) == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), inside+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	ns, err := netns.Create("ours")
	must(err)
	if out, err := exec.Command("ip", "netns", "add", "theirs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	again, err := netns.Open("ours")
	must(err)
	must(errors.Join(again.Close(), ns.Close(), netns.Remove("ours"), netns.Remove("theirs")))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(err)
	for _, name := range []string{"ours", "theirs"} { // a lab beside this test has others
		if strings.Contains(string(mounts), netns.Dir+"/"+name+" ") {
			t.Errorf("namespace %s is still mounted:\n%s", name, mounts)
		}
	}
}
