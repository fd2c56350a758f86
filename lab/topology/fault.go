package topology

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairway-net/fairway/lab/fault"
)

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
// them starts them again.
func (n *Node) Mend() error {
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
