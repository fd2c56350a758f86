//go:build !race

package speaker

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/test/netnstest"
)

// TestQuietFirst: where addresses of Services are the node's own, its kernel answers ARP only
// for those of each interface before a table with the first address is applied. Otherwise
// nothing is changed.
func TestQuietFirst(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs a network namespace")
	}
	for _, takes := range []bool{true, false} {
		ns := netnstest.New(t)
		n := announcingTo(t, &notebook{})
		n.takes = func() bool { return takes }
		err := ns.Do(func() error {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "veth0"}); err != nil {
				return err
			}
			n.Intend(balanced(0))
			before := ignores(t, "eth0")
			n.Intend(balanced(0, "192.0.2.1"))
			want := map[bool]string{true: "1", false: "0"}[takes]
			if after := ignores(t, "eth0"); before != "0" || after != want {
				t.Errorf("addresses are the node's own %v: arp_ignore is %s without one and %s with one, want 0 and %s", takes, before, after, want)
			}
			if pods := ignores(t, "veth0"); pods != "0" {
				t.Errorf("arp_ignore of an interface that leads to a pod is %s", pods)
			}
			n.takes = func() bool { return true } // another mode is about to be in force
			if n.Intend(balanced(0, "192.0.2.1")); ignores(t, "eth0") != "1" {
				t.Error("arp_ignore isn't set before a change of the mode")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func ignores(t *testing.T, device string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + device + "/arp_ignore")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
