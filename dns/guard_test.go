package dns

import (
	"net/netip"
	"testing"
)

// TestGuard checks that a guarded port refuses strangers, whatever they ask.
func TestGuard(t *testing.T) {
	for network, want := range map[string]string{"127.0.0.0/8": "NOERROR", "192.0.2.0/24": "REFUSED"} {
		t.Run(want, func(t *testing.T) {
			_, upstream := newUpstream(t)
			at := freeAddress()
			start(t, example(), Corefile(CorefileConfig{
				Listen: []netip.AddrPort{at}, Upstreams: []string{upstream},
				Guard: Guard{Port: at.Port(), Clients: []netip.Prefix{netip.MustParsePrefix(network)}},
			}))
			for _, name := range []string{"web.default.svc.cluster.local.", "example.com."} {
				for _, transport := range []string{"+notcp", "+tcp"} {
					if status, _ := dig(t, at, transport, "A", name); status != want {
						t.Errorf("%s (%s): got %s, want %s", name, transport, status, want)
					}
				}
			}
		})
	}
}
