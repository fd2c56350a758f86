package dns

import (
	"context"
	"crypto/rand"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// loopGuard finds out whether this server's upstreams ask this server: then a
// question would go round until something breaks. CoreDNS' own loop plugin ends
// the process, which here forwards packets too; so questions are refused
// instead, until the loop is gone.
type loopGuard struct {
	mu     sync.Mutex
	probe  string // the name of the question that is on its way
	seen   int    // how often it came by
	looped bool
}

// refuses reports whether a question must not be passed on.
func (l *loopGuard) refuses(q dns.Question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.Qtype == dns.TypeHINFO && l.probe != "" && strings.EqualFold(q.Name, l.probe) {
		l.seen++
		return l.seen > 1
	}
	return l.looped
}

// asks reports whether a question is the one that looks for a loop.
func (l *loopGuard) asks(q dns.Question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return q.Qtype == dns.TypeHINFO && l.probe != "" && strings.EqualFold(q.Name, l.probe)
}

func (l *loopGuard) begin() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probe, l.seen = strings.ToLower(rand.Text()+"."+rand.Text()+"."), 0
	return l.probe
}

// end tells whether there is a loop, and whether that is new.
func (l *loopGuard) end() (looped, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.looped
	l.looped, l.probe = l.seen > 1, ""
	return l.looped, l.looped != was
}

// GuardLoops asks a question of the server at an address now and then, until
// ctx is done, and has it refuse what it would pass on while that comes back.
func (s *Server) GuardLoops(ctx context.Context, at netip.AddrPort, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	client := &dns.Client{Timeout: 5 * time.Second}
	silent, silences := false, 0
	for {
		m := new(dns.Msg)
		m.SetQuestion(s.loop.begin(), dns.TypeHINFO)
		answer, _, err := client.ExchangeContext(ctx, m, at.String())
		if ctx.Err() != nil {
			return
		}
		if silences++; err == nil && answer.Rcode != dns.RcodeServerFailure {
			silences = 0
		}
		was := silent
		silent = silences >= 2 // one question may be lost, or be asked before the server listens
		switch looped, changed := s.loop.end(); {
		case looped && changed:
			s.log.Error("DNS loop detected: the upstream servers ask this server; refusing external names until it clears")
		case changed:
			s.log.Info("the DNS loop is gone: the upstream servers don't ask this server any more")
		case silent && !was && !looped:
			s.log.Warn("the upstream DNS servers don't answer: names outside the cluster are answered from the cache")
		case was && !silent:
			s.log.Info("the upstream DNS servers answer again")
		}
		select {
		case <-ctx.Done():
			return
		case <-again(silences == 1, ticker.C):
		}
	}
}

// again is when to ask once more: soon after the first silence, else in turn.
func again(soon bool, turn <-chan time.Time) <-chan time.Time {
	if soon {
		return time.After(2 * time.Second)
	}
	return turn
}
