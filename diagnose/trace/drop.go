package trace

import (
	"fmt"
	"net/netip"
)

// Drop is a packet of the connection that a node's kernel dropped.
type Drop struct {
	Node        string         `json:"node,omitempty"`
	Reason      string         `json:"reason"` // as the kernel calls it: "IP_RPFILTER"
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
}

// dropMeanings say more of some reasons (include/net/dropreason-core.h).
var dropMeanings = map[string]string{
	"NETFILTER_DROP":    "a rule of netfilter that nf_tables doesn't trace: iptables-legacy, for instance",
	"IP_RPFILTER":       "the way back to its source is by another interface (rp_filter)",
	"IP_INNOROUTES":     "there is no route to its destination, or forwarding is off",
	"IP_OUTNOROUTES":    "there is no route to its destination",
	"IP_INADDRERRORS":   "its destination is no address that may be there, or forwarding is off",
	"IP_INVALID_SOURCE": "its source is no address that may come in here (martian)",
	"IP_LOCAL_SOURCE":   "its source is an address of this node",
	"NO_SOCKET":         "nobody listens there",
	"NEIGH_FAILED":      "the next hop doesn't answer to ARP or neighbour discovery",
	"NEIGH_QUEUEFULL":   "the next hop doesn't answer to ARP or neighbour discovery",
	"TC_INGRESS":        "a program at the interface where it came in dropped it",
	"TC_EGRESS":         "a program at the interface where it left dropped it",
	"XDP":               "an XDP program dropped it",
	"PKT_TOO_BIG":       "it is larger than the way on takes (MTU)",
}

// TakeDrops notes those of the pending drops that are of the connection, once its ends
// are known. A rule that rejects drops the packet that it answers, which the rule's step says.
func (r *Report) TakeDrops() {
	ends := map[netip.AddrPort]bool{r.Frontend: true}
	if r.Endpoint != nil {
		ends[r.Endpoint.Address] = true
	}
	mine := func(a netip.AddrPort) bool { return a.IsValid() && (a == r.Client || a == r.Source) }
	for _, d := range r.Pending {
		if mine(d.Source) && ends[d.Destination] || ends[d.Source] && mine(d.Destination) {
			r.Drops = append(r.Drops, d)
		}
	}
	r.Pending = nil
}

// drop is the first packet that the kernel dropped without a rule that was seen; nil if
// there is none. A refusal drops the packet that it answers.
func (r *Report) drop() *Drop {
	if len(r.Drops) == 0 {
		return nil
	}
	return &r.Drops[0]
}

// droppedByKernel answers that the kernel took a packet away, with its reason.
func (r *Report) droppedByKernel(d *Drop) {
	r.Outcome = Dropped
	r.Answer = fmt.Sprintf("DROPPED%s by the kernel, on its way to %s: %s", onNode(orElse(d.Node, r.Node)), d.Destination, d.Reason)
	if meaning := dropMeanings[d.Reason]; meaning != "" {
		r.Answer += ": " + meaning
	}
	if d.Source != r.Client && d.Source != r.Source {
		r.Answer += "; it was the answer"
	}
}
