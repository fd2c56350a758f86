package realcluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// masquerade is what a CNI or the cloud does for pods that leave the cluster.
const masquerade = `table inet wan {
	chain postrouting {
		type nat hook postrouting priority srcnat + 10;
		ip saddr %[1]s ip daddr != { %[1]s, %[3]s } masquerade
		ip6 saddr %[2]s ip6 daddr != { %[2]s, %[4]s } masquerade
	}
}
`

// cable sets what a CNI's bridge wants of a node's network.
func (n *Node) cable() error {
	bridged := func() error {
		for _, family := range []string{"iptables", "ip6tables"} {
			if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+family, []byte("1"), 0); err != nil {
				return fmt.Errorf("show bridged packets to netfilter: %w", err)
			}
		}
		return nil
	}
	if n.cluster.options.CNI.isFlannel() {
		return n.Do(bridged) // it masquerades by itself
	}
	rules := fmt.Sprintf(masquerade, pods4, pods6, nodes4, nodes6)
	return errors.Join(n.Do(bridged), n.inNetwork(rules, "nft", "-f", "-"))
}

// inNetwork runs a program of the machine's in the node's network.
func (n *Node) inNetwork(input string, command ...string) error {
	return n.Do(func() error {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
		return nil
	})
}

// forget empties the node's network of what doesn't outlive a boot.
func (n *Node) forget() error {
	handle, err := n.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	var errs []error
	for _, l := range links {
		switch l.Attrs().Name {
		case "lo":
		case topology.NodeInterface:
			qdisc := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
			if err := handle.QdiscDel(qdisc); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
				errs = append(errs, fmt.Errorf("empty %s: %w", l.Attrs().Name, err))
			}
		default:
			// Pods' ends go by themselves, a moment later.
			if err := handle.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
				errs = append(errs, fmt.Errorf("remove %s: %w", l.Attrs().Name, err))
			}
		}
	}
	errs = append(errs, n.inNetwork("", "nft", "flush", "ruleset"), n.inNetwork("", "conntrack", "-F"), n.cable())
	return errors.Join(errs...)
}
