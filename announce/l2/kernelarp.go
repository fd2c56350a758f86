package l2

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// AnswerForOwn has the kernel answer ARP, on each interface that leads to other machines, for
// that interface's addresses only. It is for data planes whose addresses of Services are the
// node's own, and to be called before they are: a machine that has heard a node's kernel sends
// its packets there, whichever node announces the address.
func AnswerForOwn() error {
	list, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("keep the kernel from answering ARP for Services: list interfaces: %w", err)
	}
	var errs []error
	for _, i := range list {
		if len(i.HardwareAddr) == 6 && !virtual.MatchString(i.Name) {
			errs = append(errs, answerForOwn(i.Name))
		}
	}
	return errors.Join(errs...)
}

// answerForOwn sets arp_ignore and arp_announce of Documentation/networking/ip-sysctl.rst for
// an interface, as kube-proxy's strictARP does for all. The kernel goes by the higher value of
// the two places.
func answerForOwn(device string) error {
	for name, least := range map[string]int{"arp_ignore": 1, "arp_announce": 2} {
		if arpSetting("all", name) >= least || arpSetting(device, name) >= least {
			continue
		}
		if err := os.WriteFile(arpFile(device, name), []byte(strconv.Itoa(least)), 0o644); err != nil {
			return fmt.Errorf("keep the kernel from answering ARP for Services on %s: %w", device, err)
		}
	}
	return nil
}

func arpFile(device, name string) string {
	return filepath.Join("/proc/sys/net/ipv4/conf", device, name)
}

// arpSetting is 0, the kernel's default, where it can't be read.
func arpSetting(device, name string) int {
	text, err := os.ReadFile(arpFile(device, name))
	if err != nil {
		return 0
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return value
}
