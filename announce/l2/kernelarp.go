package l2

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsInterface holds all addresses of Services in ipvs mode, on every node. The
// kernel would answer ARP for them on every other interface too.
const ipvsInterface = "kube-ipvs0"

// answerForOwn has the kernel answer ARP on an interface for that interface's
// addresses only, where it would answer for Services: in ipvs mode, and in userspace mode,
// whose routes make them the node's own. It sets arp_ignore and arp_announce of
// Documentation/networking/ip-sysctl.rst, as kube-proxy's strictARP does for all interfaces.
func answerForOwn(device string, served map[netip.Addr]bool) error {
	answers, err := kernelAnswersFor(served)
	if err != nil || !answers {
		return err
	}
	for name, least := range map[string]int{"arp_ignore": 1, "arp_announce": 2} {
		file := filepath.Join("/proc/sys/net/ipv4/conf", device, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("keep the kernel from answering ARP for Services on %s: %w", device, err)
		}
		value, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err == nil && value >= least {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(least)), 0o644); err != nil {
			return fmt.Errorf("keep the kernel from answering ARP for Services on %s: %w", device, err)
		}
	}
	return nil
}

// kernelAnswersFor reports whether the kernel takes addresses of Services for its own. The
// data plane treats them alike, so one is looked at.
func kernelAnswersFor(served map[netip.Addr]bool) (bool, error) {
	_, err := netlink.LinkByName(ipvsInterface)
	if err == nil {
		return true, nil
	}
	var absent netlink.LinkNotFoundError
	if !errors.As(err, &absent) {
		return false, fmt.Errorf("look for %s: %w", ipvsInterface, err)
	}
	for a := range served {
		if !a.Is4() {
			continue
		}
		routes, err := netlink.RouteGet(a.AsSlice())
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil // without a route it isn't
	}
	return false, nil
}
