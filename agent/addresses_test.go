package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairway-net/fairway/internal/nodeaddrs"
)

// ip runs a batch of commands of ip(8).
func ip(t *testing.T, lines ...string) {
	t.Helper()
	c := exec.Command("ip", "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v: %s", err, out)
	}
}

// TestAddressesAfterABurst: a burst of Service addresses, many times what the
// socket has room for, keeps no change of the node's own from being told.
func TestAddressesAfterABurst(t *testing.T) {
	ip(t, "link add kube-ipvs0 type bridge", "link add eth0 type bridge", "link set eth0 up", "address add 192.0.2.1/24 dev eth0")
	t.Cleanup(func() { ip(t, "link delete kube-ipvs0", "link delete eth0") })
	var mu sync.Mutex
	var told []netip.Addr
	times := 0
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- nodeaddrs.Watch(ctx, slog.New(slog.DiscardHandler), func(a []netip.Addr) {
			mu.Lock()
			defer mu.Unlock()
			told, times = a, times+1
		}, foreignInterfaces()...)
	}()
	has := func(text string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(told, netip.MustParseAddr(text))
		}
	}
	eventually(t, "the first address told", has("192.0.2.1"))
	var services []string
	for n := range 4000 {
		services = append(services, fmt.Sprintf("address add 10.96.%d.%d/32 dev kube-ipvs0", n>>8, n&255))
	}
	ip(t, services...)
	ip(t, "address add 192.0.2.2/24 dev eth0", "address add 2001:db8::2/64 dev eth0 nodad")
	eventually(t, "an address after the burst told", has("192.0.2.2"))
	eventually(t, "an IPv6 address after the burst told", has("2001:db8::2"))
	mu.Lock()
	if slices.Contains(told, netip.MustParseAddr("10.96.0.1")) || times > 10 {
		t.Errorf("told %d times, last %v", times, told)
	}
	mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
