package nftables

import (
	"net/netip"

	"github.com/fairway-net/fairway/internal/weights"
	"github.com/fairway-net/fairway/model"
)

// A pool's slots are a list of backends of which a new connection takes one at
// random: each stands there as often as its weight says.

// maxSlots bounds the slots of a pool in which weights differ. Weights that
// need more are rounded. No pool has more than the number of how it chooses can
// hold (chosen); backends beyond that get no connections.
const (
	maxSlots    = 2048
	maxBackends = 1<<16 - 1
)

// assign gives backends their shares of slots and moves as few as it can.
func assign(old []netip.AddrPort, backends []model.Backend) []netip.AddrPort {
	backends = backends[:min(len(backends), maxBackends)]
	missing := make(map[netip.AddrPort]int, len(backends))
	order := make([]netip.AddrPort, len(backends))
	for i, n := range weights.Of(backends, maxSlots) {
		order[i] = backends[i].AddrPort()
		missing[order[i]] = n
	}
	return weights.Fill(old, missing, order)
}
