package topology

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fairway-net/fairway/lab/fault"
)

// ErrNoPower says that nothing can be started on a node.
var ErrNoPower = errors.New("the node has no power")

// Powered runs start, which starts a process in the node's cgroup, if the node has power. A process
// that is born frozen doesn't reach its program, and whoever starts it waits for that, with the Go
// runtime's world in its hands: nobody would be left to give the power back.
func (n *Node) Powered(start func() error) error {
	n.power.RLock()
	defer n.power.RUnlock()
	if dir, err := FindCgroup(n.lab.name, n.Name); err == nil {
		if frozen, err := os.ReadFile(filepath.Join(dir, "cgroup.freeze")); err == nil && string(frozen) == "1\n" {
			return fmt.Errorf("start a process on %s: %w", n.Name, ErrNoPower)
		}
	}
	return start()
}

// StartPowered is [Host.Start] where the process is in the node's cgroup.
func (n *Node) StartPowered(cmd *exec.Cmd) error {
	return n.Powered(func() error { return n.Start(cmd) })
}

// Break has the node suffer a fault until Mend. What its kernel holds stays, even
// without power.
func (n *Node) Break(kind fault.Kind) error {
	if err := n.Mend(); err != nil {
		return err
	}
	switch underlay, port := n.lab.underlay, interfaceName(n.Name); kind {
	case fault.Partition:
		return fault.Cut(underlay.NS, port)
	case fault.Power:
		n.power.Lock()
		defer n.power.Unlock()
		return errors.Join(fault.Cut(underlay.NS, port), n.freeze("1"))
	case fault.Link:
		link, err := underlay.netlink.LinkByName(port)
		if err == nil {
			err = underlay.netlink.LinkSetDown(link)
		}
		if err != nil {
			return fmt.Errorf("bring the link of %s down: %w", n.Name, err)
		}
		return nil
	}
	return fmt.Errorf("node fault %q: unknown", kind)
}

// Mend undoes Break. Processes that were without power end, so that whoever runs
// them starts them again, once there is power.
func (n *Node) Mend() error {
	n.power.Lock()
	defer n.power.Unlock()
	underlay, port := n.lab.underlay, interfaceName(n.Name)
	dir, err := n.Cgroup()
	if err != nil {
		return err
	}
	frozen, err := os.ReadFile(filepath.Join(dir, "cgroup.freeze"))
	if err != nil {
		return fmt.Errorf("read whether %s has power: %w", n.Name, err)
	}
	if string(frozen) == "1\n" {
		if err := errors.Join(killEach(dir), n.freeze("0")); err != nil {
			return fmt.Errorf("start %s again: %w", n.Name, err)
		}
	}
	return errors.Join(fault.Join(underlay.NS, port), underlay.up(port))
}

// freeze stops the node's processes or has them go on (cgroup v2, cgroup.freeze).
func (n *Node) freeze(value string) error {
	dir, err := n.Cgroup()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(value), 0); err != nil {
		return fmt.Errorf("freeze the processes of %s: %w", n.Name, err)
	}
	return nil
}
