package l2

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// ipvsInterface holds all addresses of Services in ipvs mode, on every node. The
// kernel would answer ARP for them on every other interface too.
const ipvsInterface = "kube-ipvs0"

// answerForOwn has the kernel answer ARP on an interface for that interface's
// addresses only, where ipvs mode is at work: arp_ignore and arp_announce of
// Documentation/networking/ip-sysctl.rst, as kube-proxy's strictARP sets them for
// all interfaces.
func answerForOwn(device string) error {
	if _, err := netlink.LinkByName(ipvsInterface); err != nil {
		var absent netlink.LinkNotFoundError
		if errors.As(err, &absent) {
			return nil
		}
		return fmt.Errorf("look for %s: %w", ipvsInterface, err)
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
