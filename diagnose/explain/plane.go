package explain

import (
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane is in what the data plane of a node differs from what its table says. The zero Plane
// differs in nothing.
type Plane struct {
	// Lacks are what the plane doesn't do.
	Lacks []kernel.Unsupported
	// AnswersPass reports whether what an endpoint of the node sends to a client passes
	// the node. nil takes it for granted.
	AnswersPass func(client, endpoint netip.Addr) bool
}

// Whose address an endpoint sees as its client's.
const (
	SeesClient = "client"
	SeesNode   = "node"
	SeesEither = "either"
)

// lack finds a feature among what the plane lacks.
func (p Plane) lack(f kernel.Feature) *kernel.Unsupported {
	i := slices.IndexFunc(p.Lacks, func(l kernel.Unsupported) bool { return l.Feature == f })
	if i < 0 {
		return nil
	}
	return &p.Lacks[i]
}

// sees says whose address a backend sees. Either may be of a pod that reaches itself in a mode
// that may leave its address, and of the node's own processes where the source is replaced, since
// planes needn't do that for them.
func (p Plane) sees(s *model.Settings, v model.Verdict, b model.Backend) string {
	own := slices.Contains(s.NodeAddrs, b.Addr) || b.Addr.IsLoopback()
	switch {
	case p.relays(own, v, b) || v.Direct && p.lack(kernel.DirectReturn) != nil && !own:
		return SeesNode
	case v.Masquerades(b) && own, v.Direct && own, b.Addr == v.Src && p.lack(kernel.Hairpin) != nil:
		return SeesEither
	case v.Masquerades(b):
		return SeesNode
	}
	return SeesClient
}

// relays reports whether the plane's own connections lead to a backend.
func (p Plane) relays(own bool, v model.Verdict, b model.Backend) bool {
	lack := p.lack(kernel.ClientAddress)
	if lack == nil {
		return false
	}
	shows := lack.Value == kernel.RemoteOnly && b.Local && !own && v.Origin != model.FromNode && !v.Direct && !v.Src.IsLinkLocalUnicast()
	return !shows || p.AnswersPass != nil && !p.AnswersPass(v.Src, b.Addr)
}

// otherwise says what the plane does otherwise than the verdict.
func (p Plane) otherwise(d Decision, v model.Verdict) (list []string) {
	say := func(l *kernel.Unsupported) {
		if l != nil {
			list = append(list, l.String()+": "+l.Why)
		}
	}
	if v.Direct {
		say(p.lack(kernel.DirectReturn))
	}
	if v.Action == model.Discard {
		for i, l := range p.Lacks {
			if l.Feature == kernel.SilentDrop && (l.Value == "" || l.Value == v.Frontend.Proto.String()) {
				say(&p.Lacks[i])
			}
		}
	}
	if slices.ContainsFunc(d.Candidates, func(c CandidateShare) bool { return c.Sees == SeesNode }) && v.Origin != model.FromNode && !v.Masquerade && !v.Direct {
		say(p.lack(kernel.ClientAddress))
	}
	return list
}

// clientAddress sums up what the chosen endpoints see; "" where nothing is known of any.
func clientAddress(candidates []CandidateShare) string {
	seen := map[string]bool{}
	for _, c := range candidates {
		if c.Chosen {
			seen[c.Sees] = true
		}
	}
	switch {
	case seen[SeesEither] && len(seen) == 1:
		return "client address kept or replaced by the node's, as the mode has it for the node's own processes"
	case seen[SeesClient] && seen[SeesNode]:
		return "client address replaced by the node's for some of them"
	case seen[SeesClient]:
		return "client address kept"
	case seen[SeesNode]:
		return "client address replaced by the node's"
	}
	return ""
}

// seesText says of an endpoint that it sees the node's address, though the route doesn't.
func (d Decision) seesText(c CandidateShare) string {
	if c.Sees != SeesNode || d.Masquerade {
		return ""
	}
	return "; sees the node's address"
}
