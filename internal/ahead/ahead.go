// Package ahead finds rules of other programs that netfilter runs before those that translate
// packets of Services, and that keep such packets from them: they drop them, lead them
// elsewhere, or have connection tracking leave them alone. Nothing of the data plane is amiss
// then, and the Service doesn't answer.
//
//   - ahead.go: a rule, and which Services it concerns
//   - nft.go: rules of nf_tables, iptables-nft included
//   - legacy.go: rules of iptables-legacy
package ahead

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// Effect is what a rule does to packets.
type Effect string

// What keeps packets from being translated.
const (
	Drops      Effect = "drops"
	Translates Effect = "leads elsewhere"
	Untracks   Effect = "leaves untracked"
	// Ends is an ACCEPT or RETURN in the table that leads to the Services' chains further on.
	Ends Effect = "keeps from the Services' chains"
	// returns is Ends where packets go on by the base chain's policy.
	returns Effect = "returns"
)

// Rule is one that comes before those of Services.
type Rule struct {
	Where  string // "table ip nat, chain PREROUTING"
	Effect Effect
	packets
}

// packets are those that a rule is about.
type packets struct {
	ipv4  bool         // they are of the family
	ipv6  bool         //
	proto uint8        // 0 is any
	to    netip.Prefix // invalid is any
	ports [][2]uint16  // from and to; nil is any
	more  bool         // there are conditions that aren't understood
}

// String says it in one line, as in "table ip raw, chain PREROUTING drops some packets to port 80".
func (r Rule) String() string {
	what := "packets"
	if r.more {
		what = "some packets"
	}
	where := ""
	if r.to.IsValid() {
		where += " to " + r.to.String()
	}
	if r.ports != nil {
		var list []string
		for _, p := range r.ports {
			if p[0] == p[1] {
				list = append(list, fmt.Sprint(p[0]))
			} else {
				list = append(list, fmt.Sprintf("%d-%d", p[0], p[1]))
			}
		}
		where += " to port " + strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s %s %s%s", r.Where, r.Effect, what, where)
}

// Takes reports whether a rule keeps packets from a frontend: one that names the frontend's
// port or address, or that is about all packets. Others, such as one that checks where
// packets come from, aren't about Services.
func (r Rule) Takes(f *model.Frontend, s *model.Settings) bool {
	if r.proto != 0 && r.proto != numbers[f.Proto] || f.Addr.Is4() && !r.ipv4 || f.Addr.Is6() && !r.ipv6 {
		return false
	}
	named := false
	if r.ports != nil {
		if !slices.ContainsFunc(r.ports, func(p [2]uint16) bool { return p[0] <= f.Port && f.Port <= p[1] }) {
			return false
		}
		named = true
	}
	if r.to.IsValid() && r.to.Bits() > 0 {
		if !r.reaches(f, s) {
			return false
		}
		named = true
	}
	return named || !r.more
}

func (r Rule) reaches(f *model.Frontend, s *model.Settings) bool {
	if f.IsNodePort() {
		return slices.ContainsFunc(s.NodeAddrs, r.to.Contains)
	}
	return r.to.Contains(f.Addr)
}

// numbers are those of protocols in IP headers.
var numbers = map[model.Protocol]uint8{model.TCP: 6, model.UDP: 17, model.SCTP: 132}

// Read lists the rules in the network namespace of the calling thread. Where a part can't be
// read, that is an error, and the rest is there.
func Read(ctx context.Context) ([]Rule, error) {
	list, err := readNFTables()
	if err != nil {
		err = fmt.Errorf("read rules of nf_tables: %w", err)
	}
	for _, six := range []bool{false, true} {
		some, failed := readLegacy(ctx, six)
		if list = append(list, some...); failed != nil {
			err = errors.Join(err, fmt.Errorf("read rules of iptables-legacy: %w", failed))
		}
	}
	return list, err
}

// servicesChain is where iptables and ipvs mode, and kube-proxy, translate.
const servicesChain = "KUBE-SERVICES"

// isOfServices reports whether a chain is theirs.
func isOfServices(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }

// targets are what targets of iptables do to packets of Services.
var targets = map[string]Effect{
	"DROP": Drops, "REJECT": Drops, "DNAT": Translates, "REDIRECT": Translates, "TPROXY": Translates,
	"NOTRACK": Untracks, "CT": Untracks, "ACCEPT": Ends, "RETURN": returns,
}

// deepest is how many chains may lead to each other.
const deepest = 8

// mostSteps bounds the rules that are gone through in a table, and mostRules those that are told
// of: chains may lead to each other in millions of ways.
const mostSteps, mostRules = 100_000, 5000

// step is what a rule does, as a table's reader has understood it.
type step struct {
	packets
	effect Effect
	jump   string // the chain that it leads to
}

// walker follows packets through the chains of a table.
type walker struct {
	rules func(chain string, come packets) ([]step, error)
	found func(chain string, s step)
	// enders are rules at which packets leave the table, be it for the Services' chains
	// further on.
	enders []func()
	steps  int // gone through
	told   int
}

// report reports a rule, unless it is about no Service whatever the Services are: lists of
// senders may be long.
func (w *walker) report(chain string, s step) {
	if s.more && s.ports == nil && (!s.to.IsValid() || s.to.Bits() == 0) || w.told == mostRules {
		return
	}
	w.told++
	w.found(chain, s)
}

// walk goes through a chain. It reports whether packets have come to the Services' chains:
// what is behind those comes after them.
func (w *walker) walk(chain string, come packets, by ...string) (arrived bool, err error) {
	if slices.Contains(by, chain) || len(by) > deepest {
		return false, nil
	}
	list, err := w.rules(chain, come)
	if err != nil {
		return false, err
	}
	list = list[:min(len(list), mostSteps-w.steps)]
	w.steps += len(list)
	for _, s := range list {
		switch {
		case s.jump == servicesChain:
			for _, tell := range w.enders {
				tell()
			}
			return true, nil
		case s.jump != "" && !isOfServices(s.jump):
			if arrived, err := w.walk(s.jump, s.packets, append(slices.Clone(by), chain)...); arrived || err != nil {
				return arrived, err
			}
		case s.effect == Ends || s.effect == returns && len(by) == 0:
			s.effect = Ends
			w.enders = append(w.enders, func() { w.report(chain, s) })
		case s.effect != "" && s.effect != returns:
			w.report(chain, s)
		}
	}
	return false, nil
}
