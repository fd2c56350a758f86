//go:build !agentonly && servers

package cmd

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/test/linearizability"
)

// TestServersFail: three machines, each with a server and an agent, while clients
// write by all servers and every machine calls a Service. Servers are killed,
// fall silent, are cut off, have their disk full and their clock jump; all are
// replaced by another program, and the agents too. No acknowledged write is lost,
// no address is given twice, no call fails, no connection is lost, no machine is
// taken for silent, and the API is back within ten seconds.
func TestServersFail(t *testing.T) {
	before, after := built("FAIRWAY_BEFORE"), built("FAIRWAY_AFTER")
	if before == "" || after == "" {
		t.Fatal("FAIRWAY_BEFORE and FAIRWAY_AFTER name two programs: `make check NAME=servers` builds them")
	}
	trio := startTrio(newNetwork(t), before, after)
	h := linearizability.New()
	stopWrites := h.Load(t, trio.apis)
	calls, stopCalls := trio.startCalls()
	ready := trio.readySince()
	for _, fault := range trio.faults() {
		fault.happen()
		calls.check(fault.name)
		now := trio.readySince()
		if !fault.silences && !maps.EqualFunc(now, ready, time.Time.Equal) {
			t.Errorf("%s: machines are ready since %v, before since %v", fault.name, now, ready)
		}
		ready = now
	}
	stopWrites()
	stopCalls()
	calls.check("at the end")
	for _, who := range slices.Sorted(maps.Keys(calls.answered)) {
		t.Logf("%s: %d calls, all answered", who, calls.answered[who])
	}
	if len(calls.answered) != 12 {
		t.Errorf("%d kinds of calls were answered, want 12", len(calls.answered))
	}
	t.Logf("the API was away for %s at the longest", trio.slowest.Round(100*time.Millisecond))
	if trio.slowest > 10*time.Second {
		t.Error("that is more than ten seconds")
	}
	h.Check(t, trio.apis[0])
}

// trioFault is what happens to a trio; it returns with all servers and agents running.
type trioFault struct {
	name     string
	happen   func()
	silences bool // agents, for a while
}

func (t *trio) faults() []trioFault {
	other := func(i int) int { return (i + 1) % 3 }
	kill := func(i int) {
		t.t.Logf("kill -9 of the server of %s", t.names[i])
		t.kill(i)
		t.goesOn(other(i))
		t.serve(i, "")
		t.works(i)
	}
	return []trioFault{
		{"kill -9 of the leader", func() { kill(t.leader()) }, false},
		{"kill -9 of a follower", func() { kill(other(t.leader())) }, false},
		{"a silent leader", func() {
			i := t.leader()
			t.signal(t.servers[i], syscall.SIGSTOP)
			t.goesOn(other(i))
			t.signal(t.servers[i], syscall.SIGCONT)
			t.works(i)
		}, false},
		{"a leader that is cut off from the others", func() { t.isolateLeader("2380") }, false},
		{"a leader that is cut off from the others and from all agents", func() {
			machine := t.isolateLeader("2380, 6443")
			eventually(t.t, "the agent of "+machine+" is heard again", func() bool { return len(t.readySince()) == 3 })
		}, true},
		{"kill -9 of two", t.killTwo, false},
		{"a full disk", t.fillDisk, false},
		{"clocks that jump", t.jumpClocks, false},
		{"a rolling upgrade", t.upgrade, true},
	}
}

// isolateLeader cuts the leader's ports off, and returns its machine.
func (t *trio) isolateLeader(ports string) string {
	t.t.Helper()
	i := t.leader()
	heal := t.cutOff(i, ports)
	eventually(t.t, t.names[i]+" takes no writes", func() bool { return t.write(i) != nil })
	t.goesOn((i + 1) % 3)
	heal()
	t.works(i)
	return t.names[i]
}

// killTwo has no server work for longer than it takes to hold a machine for silent.
func (t *trio) killTwo() {
	t.t.Helper()
	i := t.leader()
	j := (i + 1) % 3
	t.kill(i)
	t.kill(j)
	time.Sleep(20 * time.Second) // no majority, for longer than machines may be silent
	// The first of them waits for the second.
	both := make(chan struct{})
	go func() {
		defer close(both)
		t.serve(i, "")
	}()
	t.serve(j, "")
	<-both
	for i := range t.names {
		t.works(i)
	}
}

// fillDisk fills the small disk of m3, once it leads and once it follows if that
// comes about.
func (t *trio) fillDisk() {
	t.t.Helper()
	dir := filepath.Join(t.hosts["m3"].dir, "lib")
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	t.must(err)
	_, err = io.Copy(f, zeros{})
	if err == nil {
		t.t.Fatal("the disk has no end")
	}
	t.must(f.Close())
	var s unix.Statfs_t
	t.must(unix.Statfs(dir, &s))
	t.t.Logf("the disk of m3 is full: %d KiB free (%v)", s.Bavail*uint64(s.Bsize)/1024, err)
	t.goesOn(0)
	t.goesOn(1)
	eventually(t.t, "the server of m3 refuses writes", func() bool { return t.write(2) != nil })
	t.must(os.Remove(filler))
	t.works(2)
}

// zeros never ends.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// jumpClocks has the clock of the leader jump, of a server that follows, and of an
// agent; ahead, back, and to where it should be.
func (t *trio) jumpClocks() {
	t.t.Helper()
	i := t.leader()
	j := (i + 1) % 3
	ahead := make([]int, 3) // of each server's clock, in hours
	for _, hours := range []int{2, -2, 0} {
		for _, jump := range []struct {
			whose   string
			machine int
			program *program
			server  bool
		}{{"the leader", i, t.servers[i], true}, {"a follower", j, t.servers[j], true}, {"an agent", j, t.agents[j], false}} {
			t.t.Logf("the clock of %s, on %s, is %d hours ahead", jump.whose, t.names[jump.machine], hours)
			t.setClock(jump.machine, jump.program, hours)
			if jump.server {
				ahead[jump.machine] = hours
			}
			time.Sleep(15 * time.Second) // longer than machines may be silent
			for k := range t.names {
				// Before certificates were issued, a server accepts none of them.
				if ahead[k] >= 0 {
					t.goesOn(k)
				}
			}
		}
	}
	for k := range t.names {
		t.works(k)
	}
}

// upgrade replaces one program after the other.
func (t *trio) upgrade() {
	t.t.Helper()
	for i := range t.names {
		t.install(i, t.after)
		t.end(t.servers[i])
		t.serve(i, "")
		t.works(i)
	}
	for i := range t.names {
		t.end(t.agents[i])
		t.join(i, "")
	}
	for i := range t.names {
		for what, p := range map[string]*program{"server": t.servers[i], "agent": t.agents[i]} {
			eventually(t.t, "the "+what+" of "+t.names[i]+" is the other program", func() bool { return t.runs(p) == t.after })
		}
	}
	eventually(t.t, "the agents of the other program beat", func() bool { return len(t.readySince()) == 3 })
	time.Sleep(15 * time.Second) // while they work
}
