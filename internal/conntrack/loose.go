package conntrack

import (
	"os"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// looseSetting says whether connection tracking takes a packet from the middle of a TCP
// connection for the begin of one, as it does by default.
const looseSetting = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// Unsupported lists what planes that translate by connection tracking can't do with this
// network namespace's settings. A connection is reset by forgetting it: its next packet goes
// to another backend, which resets it. Without the setting that packet is invalid, and is dropped.
func Unsupported() []kernel.Unsupported {
	if text, err := os.ReadFile(looseSetting); err != nil || strings.TrimSpace(string(text)) != "0" {
		return nil
	}
	return []kernel.Unsupported{{
		Feature: kernel.OrphanReset,
		Why:     "net.netfilter.nf_conntrack_tcp_loose is 0: packets of connections whose endpoint is gone are dropped, and clients wait until they give up",
	}}
}
