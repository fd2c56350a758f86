package check

import (
	"os"
	"testing"

	"github.com/fairway-net/fairway/test/netnstest"
)

// TestItself: where the kernel gives a socket the very port that is asked, it
// connects to itself, and nobody has answered.
func TestItself(t *testing.T) {
	ns := netnstest.New(t)
	kernel, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	lo, err := kernel.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("20001 20001"), 0); err != nil {
			return err
		}
		for _, at := range []string{"127.0.0.1:20001", "[::1]:20001"} {
			for _, text := range []string{"tcp", "http:/"} {
				expect(t, ask(t, at, text, "interval=1m", "timeout=1m"), Refused, "refused")
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
