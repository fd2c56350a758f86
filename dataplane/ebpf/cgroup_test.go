package ebpf

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/wait"
)

// containerEnv is set in a process that is in a container's place: "own" if
// cgroups shall be mounted as a container runtime does, "host" if the host's are, "pod" if
// it is in a pod of a node that is a container, and has no cgroup namespace of its own.
const containerEnv = "FAIRWAY_TEST_CONTAINER"

// TestNarrowCgroup: an agent that sees no more than its own container's cgroup
// says so, and how to mend it. Others don't.
func TestNarrowCgroup(t *testing.T) {
	if mount := os.Getenv(containerEnv); mount != "" {
		beContainer(t, mount)
		return
	}
	machine, err := pins.InMachineNamespace()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, mount string
		command     []string
		pods        bool // there are cgroups below the agent's own
		narrow      bool
	}{
		{"machine's network and cgroups", "host", []string{"unshare"}, false, !machine},
		{"container on the machine's network", "own", []string{"unshare", "--cgroup"}, false, true},
		{"container on the machine's network that has the host's mounted", "host", []string{"unshare", "--cgroup"}, false, !machine},
		{"container in a node that is a network namespace", "own", []string{"unshare", "--cgroup", "--net"}, false, true},
		{"the same without a cgroup namespace", "host", []string{"unshare", "--net"}, false, true},
		{"node that is a network namespace", "host", []string{"unshare", "--net"}, true, false},
		{"node that is a container", "own", []string{"unshare", "--cgroup", "--net"}, true, false},
		{"pod without a cgroup namespace in a node that is a container", "pod", []string{"unshare", "--cgroup", "--net"}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newCgroup(t, c.pods)
			// It is there before that becomes the root of a namespace.
			script := `echo 0 >"$0/cgroup.procs" && exec "$@"`
			args := append([]string{"-c", script, dir}, c.command...)
			command := exec.Command("sh", append(args, "--mount", os.Args[0], "-test.run=^TestNarrowCgroup$", "-test.v")...)
			command.Env = append(os.Environ(), containerEnv+"="+c.mount)
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			if got := strings.Contains(string(output), "deploy/ebpf"); got != c.narrow {
				t.Errorf("told: %v, want %v: %s", got, c.narrow, output)
			}
		})
	}
}

// beContainer prints what an agent in this place lacks.
func beContainer(t *testing.T, mount string) {
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	if mount != "host" {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	if mount == "pod" {
		defer enterPod(t, root)()
	}
	p, err := New(kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lack := range p.Unsupported() {
		t.Log(lack.Feature, lack.Why)
	}
	named, err := New(kernel.Options{Cgroup: root})
	if err != nil {
		t.Fatal(err)
	}
	if lacks := named.Unsupported(); slices.ContainsFunc(lacks, func(l kernel.Unsupported) bool { return l.Feature == kernel.NodeSockets }) {
		t.Errorf("with a cgroup that is named: %v", lacks)
	}
}

// enterPod has the process be in a cgroup as the kubelet makes them; leave undoes it.
func enterPod(t *testing.T, root string) (leave func()) {
	t.Helper()
	enter := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	pod := filepath.Join(root, "kubepods", "pod")
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	enter(pod)
	return func() {
		enter(root)
		if err := errors.Join(os.Remove(pod), os.Remove(filepath.Dir(pod))); err != nil {
			t.Error(err)
		}
	}
}

// newCgroup makes a cgroup, with one below it if there are pods.
func newCgroup(t *testing.T, pods bool) string {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "fairway-ebpf-")
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{dir}
	if pods {
		dirs = append(dirs, filepath.Join(dir, "pod"))
		if err := os.Mkdir(dirs[1], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := len(dirs) - 1; i >= 0; i-- {
			// The kernel may still be busy with the process that was in it.
			for late := range wait.Tries(30 * time.Second) {
				err := os.Remove(dirs[i])
				if errors.Is(err, unix.EBUSY) && !late {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				break
			}
		}
	})
	return dir
}
