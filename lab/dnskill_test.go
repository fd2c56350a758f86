package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/wait"
)

// questions are asked from a pod all the time, and once more each that isn't
// answered, as resolvers do.
type questions struct {
	asker *asker
	stop  context.CancelFunc
	all   sync.WaitGroup

	mu           sync.Mutex
	asked, again int
	failed       []error
}

// askAlways asks until the result is checked. Askers wait a moment between their
// questions.
func (a *asker) askAlways(t *testing.T, askers int) *questions {
	ctx, cancel := context.WithCancel(t.Context())
	q := &questions{asker: a, stop: cancel}
	for range askers {
		q.all.Go(func() {
			for range wait.Every(ctx, time.Duration(askers)*time.Millisecond/2) {
				q.ask()
			}
		})
	}
	return q
}

func (q *questions) ask() {
	err := q.asker.ask()
	retried := err != nil
	if retried {
		err = q.asker.ask()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	if retried {
		q.again++
	}
	if err != nil {
		q.failed = append(q.failed, err)
	}
}

// reach waits until so many questions have been asked.
func (q *questions) reach(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d questions are asked", n), func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.asked >= n
	})
}

// check ends it. None may have failed.
func (q *questions) check(t *testing.T, c lab.Config) {
	t.Helper()
	q.stop()
	q.all.Wait()
	t.Logf("%d questions, %d asked again", q.asked, q.again)
	if len(q.failed) > 0 {
		t.Errorf("%d of %d questions failed: %v\n%s", len(q.failed), q.asked, errors.Join(q.failed...), log(t, c, "node1"))
	}
}

// freeze stops the process that starts agents again, until what it returns is
// called.
func freeze(t *testing.T, c lab.Config) (thaw func()) {
	t.Helper()
	s, err := lab.Load(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	send := func(what syscall.Signal) {
		if err := syscall.Kill(s.Supervisor.PID, what); err != nil {
			t.Error(err)
		}
	}
	send(syscall.SIGSTOP)
	thaw = sync.OnceFunc(func() { send(syscall.SIGCONT) })
	t.Cleanup(thaw)
	return thaw
}

// settle waits until a lab that is up since began starts agents again: of one
// that ends sooner it says that it didn't come up.
func settle(t *testing.T, began time.Time) {
	t.Helper()
	eventually(t, "the lab takes agents for settled", func() bool { return time.Since(began) > 5*time.Second })
}

// TestKilled kills an agent outright, in every mode that this kernel has, while
// a pod of its node asks all the time: the other node's server answers for as
// long as nobody starts the agent again, and then the node's own does.
func TestKilled(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ebpf", "userspace"} {
		t.Run(mode, func(t *testing.T) { testKilled(t, mode) })
	}
}

func testKilled(t *testing.T, mode string) {
	c, pod := dnsLab(t, "dns-kill-"+mode, mode)
	began := time.Now()
	a := newAsker(t, c, pod)
	for _, node := range []string{"node1", "node2"} {
		eventually(t, node+" answers itself", func() bool { return holds(c, node) })
	}
	checkUntracked(t, c, a)
	a.timeout = 5 * time.Second // as resolvers have it: what is lost with the agent is asked again
	q := a.askAlways(t, 20)
	q.reach(t, 1000)
	settle(t, began)
	thaw := freeze(t, c)
	pid := agentOf(t, c, "node1")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease ends", func() bool { return yields(c, "node1") })
	waiting := &asker{a.ns, waitTimeout / 2}
	for range 50 {
		if err := waiting.ask(); err != nil {
			t.Errorf("while there is no agent: %v", err)
		}
	}
	thaw()
	eventually(t, "the next agent answers itself", func() bool { return agentOf(t, c, "node1") != pid && holds(c, "node1") })
	q.reach(t, 2000)
	q.check(t, c)
	checkUntracked(t, c, a)
}

// checkUntracked checks that questions stay on the asker's node, which makes no
// entries of them in its connection tracking. Those of earlier questions, which
// others' servers answered, may be there for a while yet.
func checkUntracked(t *testing.T, c lab.Config, a *asker) {
	t.Helper()
	var port uint16
	for before := trackedPorts(t, c); port == 0 || before[port]; {
		var err error
		if port, err = a.askFrom(); err != nil {
			t.Fatal(err)
		}
	}
	if trackedPorts(t, c)[port] {
		t.Errorf("tracked: a question from port %d", port)
	}
}

// trackedPorts are those from which questions have been asked that node1 tracks.
func trackedPorts(t *testing.T, c lab.Config) map[uint16]bool {
	t.Helper()
	ns, err := netns.Open(topology.HostNamespace(c.Name, "node1"))
	if err != nil {
		t.Fatal(err)
	}
	ports := map[uint16]bool{}
	err = ns.Do(func() error {
		flows, err := kernel.List(func() ([]*netlink.ConntrackFlow, error) {
			return netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		})
		for _, f := range flows {
			if f.Forward.Protocol == unix.IPPROTO_UDP && f.Forward.DstIP.Equal(net.ParseIP(clusterDNS)) {
				ports[f.Forward.SrcPort] = true
			}
		}
		return err
	})
	if err := errors.Join(err, ns.Close()); err != nil {
		t.Fatal(err)
	}
	return ports
}

// agentOf is the process of a node's agent; 0 for none.
func agentOf(t *testing.T, c lab.Config, node string) int {
	t.Helper()
	dir, err := topology.FindCgroup(c.Name, node+"/agent")
	if err != nil {
		t.Skipf("NO CGROUPS HERE: processes of a lab can't be found: %v", err)
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, os.ErrNotExist) { // between two agents
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(procs)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.Contains(args, []byte("\x00agent\x00")) {
			continue // it has ended, or is the agent's relay
		}
		return pid
	}
	return 0
}
