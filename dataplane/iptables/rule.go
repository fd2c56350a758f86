package iptables

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// rule is one rule, printed as iptables-save prints it, so that what is wanted
// and what is there can be compared as text.
type rule struct {
	src, dst netip.Prefix // all addresses if not valid, or of length 0
	notSrc   bool         // all but src
	in       string       // interface pattern as in model.PodMatch
	proto    model.Protocol
	comment  string
	dport    uint16 // 0 for any
	match    string // further matches
	verb     string // "" means -j
	target   string
}

// String gives the rule without its chain.
func (r rule) String() string {
	var b strings.Builder
	word := func(words ...string) {
		for _, w := range words {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(w)
		}
	}
	if r.src.IsValid() && (r.src.Bits() > 0 || r.notSrc) {
		if r.notSrc {
			word("!")
		}
		word("-s", r.src.Masked().String())
	}
	if r.dst.IsValid() && r.dst.Bits() > 0 {
		word("-d", r.dst.Masked().String())
	}
	if r.in != "" {
		word("-i", interfacePattern(r.in))
	}
	if r.proto != 0 {
		word("-p", r.proto.String())
	}
	if r.comment != "" {
		word(comment(r.comment))
	}
	if r.dport != 0 {
		word("-m", r.proto.String(), "--dport", strconv.Itoa(int(r.dport)))
	}
	if r.match != "" {
		word(r.match)
	}
	if r.verb == "" {
		r.verb = "-j"
	}
	if r.target != "" {
		word(r.verb, r.target)
	}
	return b.String()
}

// interfacePattern puts "cali*" as iptables has it: "cali+".
func interfacePattern(name string) string {
	if prefix, wild := strings.CutSuffix(name, "*"); wild {
		return prefix + "+"
	}
	return name
}

func ports(lo, hi int) string { return fmt.Sprintf("%d:%d", lo, hi) }

// single is the prefix that is one address.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// fromNode matches what this node's own processes send.
const fromNode = "-m addrtype --src-type LOCAL"

// conditions are the matches that tell an origin's packets, given that those of
// the origins before it (in the order of [origins]) have been dealt with; one
// rule for each of them.
func (s *state) conditions(o model.Origin) []rule {
	switch o {
	case model.FromNode:
		return []rule{{match: fromNode}}
	case model.FromPod:
		var rules []rule
		for _, p := range s.podPrefixes {
			rules = append(rules, rule{src: p})
		}
		for _, in := range s.settings.Pods.Interfaces {
			rules = append(rules, rule{in: in})
		}
		return rules
	}
	return []rule{{}}
}

// origins are in the order in which rules tell them apart: a node may have a
// pod's address itself.
var origins = []model.Origin{model.FromNode, model.FromPod, model.FromOutside}
