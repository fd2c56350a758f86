package nftables

import (
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Connections are counted in a set of all frontends, whose elements have
// counters: once a new connection has its backend, that is one element looked
// up. What is refused is counted where it is refused, by elements that packets
// make themselves, since most frontends refuse nothing; making one costs as much
// as ten lookups. Bytes are another matter, since every packet has to be looked
// up: their chains, and their elements, are there only if somebody wants them.

// counters bounds the frontends that packets make elements for, per set. Others
// go uncounted.
const counters = 1 << 16

// countersForget is after which time without traffic a counter is forgotten.
const countersForget = 24 * time.Hour

// newCounterSet is a set to which packets add.
func newCounterSet(name string, key []fieldType, comment string) *set {
	return &set{name: name, key: key, learned: true, size: counters, comment: comment}
}

// counting adds to the key's counter. Where the set is full, the rule ends here:
// so it must be the last part, and decide nothing.
func counting(s *set, key value) part {
	text := fmt.Sprintf("update @%s { %s timeout %ds counter }", s.name, key.text, int(countersForget/time.Second))
	return part{text, append(key.load(0), expression(&expr.Dynset{
		SrcRegKey: register(0), SetName: s.name, SetID: s.inBatch(), Operation: uint32(unix.NFT_DYNSET_OP_UPDATE),
		Timeout: countersForget, Exprs: []expr.Any{&expr.Counter{}}}))}
}

// eachProtocol makes a rule for every family and protocol: nft wants to know the
// protocol before it reads a port.
func eachProtocol(make func(f *family) []part) []rule {
	var out []rule
	for _, f := range families {
		for _, p := range protocols {
			out = append(out, newRule(append([]part{f.only(), onlyProtocol(p)}, make(f)...)...))
		}
	}
	return out
}

// countingChains count bytes.
func countingChains() []chain {
	bytes := eachProtocol(func(f *family) []part { return []part{original, counting(f.bytesIn, f.original())} })
	bytes = append(bytes, eachProtocol(func(f *family) []part { return []part{reply, counting(f.bytesOut, f.original())} })...)
	return []chain{{name: "count-bytes", rules: bytes}}
}

// countRefused are the first rules of where packets are refused.
func countRefused() []rule {
	return eachProtocol(func(f *family) []part { return []part{counting(f.refused, f.destination())} })
}

// bytesChains see every packet once, after its connection is known to be
// translated: what this node sends itself when it leaves.
func bytesChains() []chain {
	return []chain{
		{name: "bytes-prerouting", hook: bytesPrerouting, rules: []rule{newRule(translated, notFromLo, jump("count-bytes"))}},
		{name: "bytes-output", hook: bytesOutput, rules: []rule{newRule(translated, jump("count-bytes"))}},
	}
}

var (
	bytesPrerouting = &hook{"filter", "prerouting", unix.NF_INET_PRE_ROUTING, -90}
	bytesOutput     = &hook{"filter", "output", unix.NF_INET_LOCAL_OUT, -90}

	original = ctDirection(0, "original")
	reply    = ctDirection(1, "reply")
)

func ctDirection(direction byte, name string) part {
	return part{"ct direction " + name, expressions(
		&expr.Ct{Register: register(0), Key: expr.CtKeyDIRECTION},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{direction}})}
}
