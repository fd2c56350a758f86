package topology_test

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestPowerWhileStarting: processes of a node are started all the time while its power goes and
// comes back. None is born frozen, for which its parent would wait for good.
func TestPowerWhileStarting(t *testing.T) {
	l := newLab(t, labName("power"))
	n := addNode(t, l, "node1")
	dir, err := n.Cgroup()
	if err != nil {
		t.Fatal(err)
	}
	cgroup, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close() //nolint:errcheck // only read
	done := make(chan struct{})
	var starting sync.WaitGroup
	started := 0
	starting.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			cmd := exec.Command("true")
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
			switch err := n.StartPowered(cmd); {
			case err == nil:
				started++
				_ = cmd.Wait() // it may be killed when the power comes back
			case !errors.Is(err, topology.ErrNoPower):
				t.Error(err)
				return
			}
		}
	})
	for range 20 {
		if err := n.Break(fault.Power); err != nil {
			t.Fatal(err)
		}
		if err := n.StartPowered(exec.Command("true")); !errors.Is(err, topology.ErrNoPower) {
			t.Errorf("without power: %v", err)
		}
		if err := n.Mend(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	starting.Wait()
	if started == 0 {
		t.Error("nothing was started")
	}
}
