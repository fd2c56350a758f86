package agent

import (
	"github.com/fairway-net/fairway/internal/tuning"
)

// forwardPackets has the kernel forward where the configuration says that this
// machine takes others' packets to Services.
func (a *Agent) forwardPackets() {
	if !a.config.Forward {
		return
	}
	addresses, err := ownAddresses()
	if err != nil {
		a.config.Log.Warn("packets of other machines may not be forwarded: set net.ipv4.ip_forward", "error", err)
		return
	}
	ipv6 := false
	for _, address := range addresses {
		ipv6 = ipv6 || address.Is6() && !address.IsLoopback()
	}
	changed, err := tuning.Forward(ipv6)
	if err != nil {
		a.config.Log.Warn("packets of other machines may not be forwarded", "error", err)
	}
	if len(changed) > 0 {
		a.config.Log.Info("IP forwarding was turned on, so that other machines reach Services through this one; --ip-forward=false leaves it to you", "sysctls", changed)
	}
}
