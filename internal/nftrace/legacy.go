package nftrace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/legacytrace"
)

// legacy is what a session is told of iptables-legacy.
type legacy struct {
	client *legacytrace.Client
	mu     sync.Mutex
	told   []legacyEvent // of packets that aren't known yet, too
	ended  sync.WaitGroup
	stop   chan struct{}
}

type legacyEvent struct {
	legacytrace.Event
	came time.Time
}

// legacyTimeout is how long a step waits for nf_tables to tell of its packet.
const legacyTimeout = time.Second

// legacyTurn is how often steps are looked for.
const legacyTurn = 10 * time.Millisecond

// openLegacy begins to be told; nil if no table of iptables-legacy is in use.
func openLegacy() (*legacy, error) {
	if !legacytrace.InUse() {
		return nil, nil //nolint:nilnil // there is nothing to tell
	}
	client, err := legacytrace.Open()
	if err != nil {
		return nil, err
	}
	l := &legacy{client: client, stop: make(chan struct{})}
	l.ended.Go(l.read)
	return l, nil
}

func (l *legacy) read() {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		e, err := l.client.Next(time.Now().Add(legacyTurn))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return // what was told is kept; without a keeper nothing more comes
		}
		l.mu.Lock()
		l.told = append(l.told, legacyEvent{e, time.Now()})
		l.mu.Unlock()
	}
}

func (l *legacy) close() error {
	if l == nil {
		return nil
	}
	close(l.stop)
	l.ended.Wait()
	return l.client.Close()
}

// turn is when to look for more: now and then, if iptables-legacy has something to tell.
func (s *Session) turn(deadline time.Time) time.Time {
	if soon := time.Now().Add(legacyTurn); s.legacy != nil && soon.Before(deadline) {
		return soon
	}
	return deadline
}

// takeLegacy takes steps of packets that the session follows.
func (s *Session) takeLegacy() {
	if s.legacy == nil {
		return
	}
	s.legacy.mu.Lock()
	defer s.legacy.mu.Unlock()
	waiting := s.legacy.told[:0]
	for _, e := range s.legacy.told {
		if p := s.packetOf(e.Event); p != nil {
			s.pending = append(s.pending, legacyStep(e.Event, p))
		} else if time.Since(e.came) < legacyTimeout {
			waiting = append(waiting, e)
		}
	}
	s.legacy.told = waiting
}

// packetOf is the packet that a step is of: of those that are the same, the latest.
func (s *Session) packetOf(e legacytrace.Event) (found *packet) {
	network, transport := e.Headers()
	h := header(uint32(e.Family), network, transport)
	if h == nil {
		return nil
	}
	print := fingerprint(h.Proto, transport)
	for _, p := range s.packets {
		if p.print == print && print != "" && (found == nil || p.number > found.number) {
			found = p
		}
	}
	return found
}

// legacyHooks and legacyPriorities say where tables of iptables-legacy are.
var (
	legacyHooks = map[uint8]string{
		unix.NF_INET_PRE_ROUTING: "prerouting", unix.NF_INET_LOCAL_IN: "input", unix.NF_INET_FORWARD: "forward",
		unix.NF_INET_LOCAL_OUT: "output", unix.NF_INET_POST_ROUTING: "postrouting",
	}
	legacyPriorities = map[string]int32{"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
)

// legacyStep is a step of a packet.
func legacyStep(e legacytrace.Event, p *packet) Event {
	base := &Base{Hook: legacyHooks[e.Hook], Priority: legacyPriorities[e.Table]}
	if e.Table == "nat" && (e.Hook == unix.NF_INET_POST_ROUTING || e.Hook == unix.NF_INET_LOCAL_IN) {
		base.Priority = -base.Priority // there sources are translated
	}
	step := Event{
		Packet: p.number, Reply: p.reply, Family: families[e.Family], Table: e.Table, Chain: e.Chain,
		In: e.In, Out: e.Out, Legacy: base,
	}
	network, transport := e.Headers()
	step.Header = header(uint32(e.Family), network, transport)
	switch e.Kind {
	case legacytrace.Rule:
		step.Kind, step.Handle = Rule, uint64(e.Number) //nolint:gosec // it is positive
	case legacytrace.Policy:
		step.Kind = Policy
	default:
		step.Kind, step.Verdict = Return, "return"
	}
	return step
}

// legacyRule is a rule of iptables-legacy, or a policy.
func (c *Chains) legacyRule(e Event) (string, error) {
	family := iptables.IPv4
	if e.Family == families[unix.NFPROTO_IPV6] {
		family = iptables.IPv6
	}
	name := e.Family + " " + e.Table
	chains, known := c.legacy[name]
	if !known {
		var err error
		if chains, err = readLegacy(family, e.Table); err != nil {
			return "", fmt.Errorf("read table %s of iptables-legacy (chain %s): %w", name, e.Chain, err)
		}
		if c.legacy == nil {
			c.legacy = map[string]map[string]*iptables.Chain{}
		}
		c.legacy[name] = chains
	}
	chain := chains[e.Chain]
	switch {
	case chain == nil:
		return "", nil
	case e.Kind == Policy:
		return chain.Policy, nil
	case e.Kind == Rule && 0 < e.Handle && e.Handle <= uint64(len(chain.Rules)):
		return chain.Rules[e.Handle-1], nil
	}
	return "", nil
}

func readLegacy(f iptables.Family, table string) (map[string]*iptables.Chain, error) {
	tool, err := iptables.Open(context.Background(), iptables.Legacy)
	if err != nil {
		return nil, err
	}
	chains := map[string]*iptables.Chain{}
	err = tool.Walk(context.Background(), f, table, func(c *iptables.Chain) { chains[c.Name] = c })
	return chains, err
}

// LegacyVerdict is what a rule of iptables-legacy, or a policy, does with a packet, in
// nf_tables' words, and the chain that it goes to.
func LegacyVerdict(e Event, rule string) (verdict, target string) {
	if e.Kind == Policy {
		return strings.ToLower(rule), ""
	}
	if e.Kind != Rule {
		return e.Verdict, ""
	}
	words := strings.Fields(rule)
	for i, option := range words {
		if option != "-j" && option != "-g" || i+1 == len(words) {
			continue
		}
		switch t := words[i+1]; {
		case option == "-g":
			return "goto", t
		case slices.Contains([]string{"ACCEPT", "DROP", "RETURN", "QUEUE"}, t):
			return strings.ToLower(t), ""
		case t == "REJECT":
			return "drop", ""
		case slices.Contains([]string{"DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP", "NFQUEUE"}, t):
			return "accept", ""
		case t == strings.ToUpper(t) && !strings.ContainsAny(t, "-_") || strings.HasPrefix(t, "CONN"):
			return "continue", "" // MARK, LOG, CT and the like
		default:
			return "jump", t
		}
	}
	return "continue", ""
}
