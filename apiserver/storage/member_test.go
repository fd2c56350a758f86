package storage

import (
	"net"
	"net/netip"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// TestLocalAddress: connections come from the member's address where etcd can make
// them so. It can't with IPv6 addresses, and a member that asks for it doesn't start.
func TestLocalAddress(t *testing.T) {
	for at, want := range map[string]string{"192.0.2.1:2380": "192.0.2.1", "[fd00::1]:2380": ""} {
		m := &Member{Name: "s1", Listen: netip.MustParseAddrPort(at), Advertise: netip.MustParseAddrPort(at), Local: true}
		config := embed.NewConfig()
		if err := embed.NewZapLoggerBuilder(zap.NewNop())(config); err != nil {
			t.Fatal(err)
		}
		m.configure(config)
		got := config.InferLocalAddr()
		if got != want {
			t.Errorf("member at %s: connections come from %q, want %q", at, got, want)
		}
		if _, err := net.ResolveTCPAddr("tcp", got+":0"); err != nil { // as etcd does
			t.Errorf("member at %s: %v", at, err)
		}
	}
}
