package dns

import (
	"context"
	"net/netip"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/autopath"
	"github.com/coredns/coredns/plugin/pkg/upstream"
	"github.com/coredns/coredns/plugin/ready"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// pluginName is the directive's in a Corefile.
const pluginName = "fairway"

// handler is the CoreDNS plugin that answers from an Index.
type handler struct {
	next  plugin.Handler
	index *Index
	loop  *loopGuard
}

var (
	_ plugin.Handler      = (*handler)(nil)
	_ ready.Readiness     = (*handler)(nil)
	_ autopath.AutoPather = (*handler)(nil)
)

// Name is what other plugins know this one by.
func (h *handler) Name() string { return pluginName }

// Ready is for the ready plugin.
func (h *handler) Ready() bool { return h.index.Ready() }

// AutoPath is for the autopath plugin: it follows the search path in the place
// of a client whose pod is known.
func (h *handler) AutoPath(state request.Request) []string {
	a, err := netip.ParseAddr(state.IP())
	if err != nil {
		return nil
	}
	return h.index.searchPath(a.Unmap().WithZone(""))
}

// ServeDNS answers a question or passes it on.
func (h *handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	q := m.Question[0]
	r, outcome := h.index.lookup(q.Name, q.Qtype)
	if outcome == notOurs {
		if h.loop.refuses(q) {
			return dns.RcodeServerFailure, nil
		}
		if h.next == nil { // no upstreams
			return dns.RcodeRefused, nil
		}
		rcode, err := plugin.NextOrFailure(pluginName, h.next, ctx, w, m)
		if err != nil && h.loop.asks(q) {
			return rcode, nil // whoever looks for loops says what is wrong
		}
		return rcode, err
	}
	answer := new(dns.Msg)
	answer.SetReply(m)
	answer.Authoritative, answer.RecursionAvailable = true, true
	switch outcome {
	case notYet:
		return dns.RcodeServerFailure, nil
	case noName:
		answer.Rcode = dns.RcodeNameError
	}
	answer.Answer, answer.Extra = r.answer, r.extra
	if r.authority != nil {
		answer.Ns = []dns.RR{r.authority}
	}
	if r.alias != "" {
		h.follow(ctx, request.Request{W: w, Req: m}, answer, r.alias)
	}
	if err := w.WriteMsg(answer); err != nil {
		return dns.RcodeServerFailure, err
	}
	return dns.RcodeSuccess, nil // written, whatever it says
}

// maxAliases is how many ExternalNames in a row are followed: they may go in
// circles.
const maxAliases = 8

// follow completes an answer with what an alias leads to, since stub resolvers
// don't ask again: records of the cluster, or what this server finds out as if
// it had been asked.
func (h *handler) follow(ctx context.Context, state request.Request, answer *dns.Msg, alias string) {
	qtype := state.QType()
	for range maxAliases {
		r, outcome := h.index.lookup(alias, qtype)
		switch outcome {
		case notOurs:
			h.followAway(ctx, state, answer, alias)
			return
		case noName:
			answer.Rcode = dns.RcodeNameError
		}
		answer.Answer = append(answer.Answer, r.answer...)
		answer.Extra = append(answer.Extra, r.extra...)
		if r.authority != nil {
			answer.Ns = []dns.RR{r.authority}
		}
		if alias = r.alias; alias == "" {
			return
		}
	}
	answer.Rcode = dns.RcodeServerFailure
}

func (h *handler) followAway(ctx context.Context, state request.Request, answer *dns.Msg, alias string) {
	found, err := upstream.New().Lookup(ctx, state, alias, state.QType())
	if err != nil || found == nil {
		answer.Rcode = dns.RcodeServerFailure
		return
	}
	answer.Authoritative = false
	answer.Rcode = found.Rcode
	answer.Answer = append(answer.Answer, found.Answer...)
	answer.Ns = append(answer.Ns, found.Ns...)
}
