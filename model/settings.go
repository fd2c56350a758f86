package model

import (
	"net/netip"
	"slices"
	"strings"
)

// Settings are what holds for the whole table.
type Settings struct {
	// Pods says which packets come from pods.
	Pods PodMatch
	// NodeAddrs are this node's own addresses, sorted.
	NodeAddrs []netip.Addr
	// NodePortAddrs are the addresses at which node ports answer, sorted. A
	// primary address may be among them that no interface has (yet).
	NodePortAddrs []netip.Addr
	// Reserved are the ranges that Services get their addresses from, sorted.
	// Packets to such an address that no frontend recognises are rejected: if
	// they left untranslated, conntrack would keep an untranslated entry, and
	// a later connection from the same source port would hang although the
	// Service exists by then.
	Reserved []netip.Prefix
	// Exempt are addresses inside Reserved that somebody else serves (Services
	// with a service-proxy-name label, say). Packets to them pass. Sorted.
	Exempt []netip.Addr
}

// Equal reports whether two settings say the same.
func (s *Settings) Equal(o *Settings) bool {
	return slices.Equal(s.Pods.Prefixes, o.Pods.Prefixes) &&
		slices.Equal(s.Pods.Interfaces, o.Pods.Interfaces) &&
		slices.Equal(s.NodeAddrs, o.NodeAddrs) &&
		slices.Equal(s.NodePortAddrs, o.NodePortAddrs) &&
		slices.Equal(s.Reserved, o.Reserved) &&
		slices.Equal(s.Exempt, o.Exempt)
}

// AnswersNodePorts reports whether node ports answer at an address.
func (s *Settings) AnswersNodePorts(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(s.NodePortAddrs, a, netip.Addr.Compare)
	return found
}

// PodMatch recognises packets of pods by their source address or by the
// interface they came in through; one of the two suffices. The zero value
// recognises none.
type PodMatch struct {
	Prefixes []netip.Prefix
	// Interfaces are names, or prefixes of names when they end in "*"
	// ("cali*"), at most IFNAMSIZ-1 = 15 bytes (linux/if.h) without the star.
	Interfaces []string
}

// Matches reports whether a packet with this source address that came in
// through the named interface is from a pod.
func (m PodMatch) Matches(src netip.Addr, in string) bool {
	for _, p := range m.Prefixes {
		if p.Contains(src) {
			return true
		}
	}
	for _, pattern := range m.Interfaces {
		if prefix, wild := strings.CutSuffix(pattern, "*"); pattern == in || wild && strings.HasPrefix(in, prefix) {
			return true
		}
	}
	return false
}
