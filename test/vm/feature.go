package vm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// probes find out whether the running kernel has a feature. The names are those
// of the modules that bring them.
var probes = map[string]func() (bool, error){
	"ip_vs": func() (bool, error) { return hasGenericFamily("IPVS") },
	"sctp":  func() (bool, error) { return hasSocket(unix.IPPROTO_SCTP) },
	"dummy": hasLink("dummy"),

	"bonding":    hasLink("bond"),
	"team":       hasLink("team"),
	"8021q":      hasLink("vlan"),
	"macvlan":    hasLink("macvlan"),
	"ipvlan":     hasLink("ipvlan"),
	"wireguard":  hasLink("wireguard"),
	"vxlan":      hasLink("vxlan"),
	"geneve":     hasLink("geneve"),
	"ipip":       hasLink("ipip"),
	"ip6_tunnel": hasLink("ip6tnl"),
}

// Has reports whether the running kernel has a feature of probes.
func Has(feature string) (bool, error) {
	probe, known := probes[feature]
	if !known {
		return false, fmt.Errorf("kernel feature %q: must be one of %s", feature, strings.Join(slices.Sorted(maps.Keys(probes)), ", "))
	}
	has, err := probe()
	if err != nil {
		return false, fmt.Errorf("find out whether this kernel has %s: %w", feature, err)
	}
	return has, nil
}

// hasGenericFamily asks for a generic netlink family; the kernel loads its
// module if it has it.
func hasGenericFamily(name string) (bool, error) {
	_, err := netlink.GenlFamilyGet(name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

func hasSocket(protocol int) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unix.Close(fd)
}

// hasLink asks for an interface of a kind, with nothing that it may need besides.
func hasLink(kind string) func() (bool, error) {
	return func() (bool, error) {
		ns, err := netns.Anonymous()
		if err != nil {
			return false, err
		}
		defer ns.Close()
		h, err := ns.Netlink(unix.NETLINK_ROUTE)
		if err != nil {
			return false, err
		}
		defer h.Close()
		attrs := netlink.LinkAttrs{Name: "probe0"}
		if kind == "macvlan" || kind == "ipvlan" {
			attrs.ParentIndex = 1 // the loopback, which can't be one's
		}
		err = h.LinkAdd(&netlink.GenericLink{LinkAttrs: attrs, LinkType: kind})
		switch {
		case errors.Is(err, unix.EOPNOTSUPP):
			return false, nil
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EEXIST):
			return true, nil // known, and in want of more
		}
		return err == nil, err
	}
}
