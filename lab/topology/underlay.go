package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const bridgeName = "br0"

// newUnderlay makes the namespace with the bridge.
func newUnderlay(l *Lab) (*Host, error) {
	u, err := openHost(underlayName, HostNamespace(l.name, underlayName),
		[]netip.Addr{nth(l.options.Underlay4, 1), nth(l.options.Underlay6, 1)})
	if err != nil {
		return nil, err
	}
	if err := u.addBridge(l.options); err != nil {
		return nil, errors.Join(err, u.remove())
	}
	if err := u.dropTheRest(); err != nil {
		return nil, errors.Join(err, u.remove())
	}
	return u, nil
}

// dropTheRest has the underlay say nothing about what comes to it and leads nowhere.
// Otherwise IPv6 tells the sender, though it doesn't forward, and whether a connection
// fails by that depends on whether it is still within its system call.
func (h *Host) dropTheRest() error {
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		route := &netlink.Route{Dst: ipNet(netip.MustParsePrefix(all)), Type: unix.RTN_BLACKHOLE}
		if err := h.netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("add blackhole route to %s: %w", h.Name, err)
		}
	}
	return nil
}

func (h *Host) addBridge(o Options) error {
	// Frames on the bridge are not for netfilter; without the module there is
	// nothing to switch off.
	for _, family := range []string{"iptables", "ip6tables", "arptables"} {
		err := h.sysctl("net/bridge/bridge-nf-call-"+family, "0")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	// Nobody queries for multicast listeners here, and a snooping bridge
	// without a querier may swallow neighbour solicitations.
	snooping := false
	if err := h.netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	if err := h.up(bridgeName); err != nil {
		return err
	}
	for i, p := range []netip.Prefix{o.Underlay4, o.Underlay6} {
		if err := h.address(bridgeName, netip.PrefixFrom(h.Addresses[i], p.Bits())); err != nil {
			return err
		}
	}
	return nil
}

// interfaceName fits a host's name into an interface's (IFNAMSIZ, with its
// terminating zero byte).
func interfaceName(host string) string {
	if len(host) < unix.IFNAMSIZ && host != bridgeName && host != "lo" {
		return host
	}
	sum := sha256.Sum256([]byte(host))
	return "host-" + hex.EncodeToString(sum[:5])
}
