package nftables

import (
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// chosen says how a pool chooses, as a number: the way, protocol and family in
// the upper half, the number of slots in the lower one. As nft prints it, 1064:5
// is one of five slots at random (1), TCP (06), IPv4. All are above all pool
// numbers.
type chosen uint32

// maxPool is the highest pool number.
const maxPool = 1<<28 - 1

// The ways of choosing.
const (
	random      = 1
	source      = 2 // by the client's address
	destination = 3 // by the frontend's address
	sticky      = 4 // by session affinity, and by another way if it has none
	learning    = 5 // not a way: how long session affinity remembers
)

// refused and discarded are what pools without backends choose.
const (
	refused   chosen = 0x70000001
	discarded chosen = 0x70000002
)

var methodNames = map[uint32]string{random: "random", source: "source", destination: "destination", sticky: "sticky"}

func choice(way uint32, p model.Protocol, f *family, slots int) chosen {
	family := uint32(4)
	if f.nfproto == unix.NFPROTO_IPV6 {
		family = 6
	}
	return chosen(way<<28 | uint32(p)<<20 | family<<16 | uint32(slots))
}

func (c chosen) method() uint32           { return uint32(c) >> 28 }
func (c chosen) protocol() model.Protocol { return model.Protocol(c >> 20) }
func (c chosen) slots() int               { return int(c & 0xffff) }

func (c chosen) family() *family { return familyOf(c>>16&0xf == 6) }

// String is the name of the chains that choose so, without the origin.
func (c chosen) String() string {
	switch {
	case c == refused:
		return "refuse"
	case c == discarded:
		return "discard"
	case methodNames[c.method()] == "":
		return "unknown " + formatClass(native(uint32(c)))
	}
	name := c.protocol().String() + c.family().suffix + "-" + methodNames[c.method()]
	if c.method() == sticky {
		return name
	}
	return fmt.Sprintf("%s-%d", name, c.slots())
}

// chains are the chains that choose so beside the fixed ones.
func (c chosen) chains() []chain {
	if c.slots() == 0 || c == choice(random, c.protocol(), c.family(), 1) || c.method() >= sticky {
		return nil
	}
	var out []chain
	for o := range model.Origin(model.NumOrigins) {
		out = append(out, chooserFor(o, c.protocol(), c.family(), c.method(), c.slots()))
	}
	return out
}

// chooserFor is the chain that chooses one of so many slots. While a
// transaction makes a pool smaller, a packet may find its number of slots just
// before and the slot just after; it takes the first slot then.
func chooserFor(o model.Origin, p model.Protocol, f *family, way uint32, slots int) chain {
	var index value
	switch way {
	case random:
		index = randomIndex(uint32(slots))
	case source:
		index = hashed(f.saddr, uint32(slots), memberSeed, 0)
	case destination:
		index = hashed(f.daddr, uint32(slots), memberSeed, 0)
	}
	chosen, first := choice(way, p, f, slots), choice(random, p, f, 1)
	c := chain{name: chosen.String() + "-" + o.String(), rules: find(o, f)}
	c.rules = append(c.rules, newRule(f.only(), onlyProtocol(p), dnatTo(f, mapped(concat(priority, index), f.slots))))
	if chosen == first {
		c.rules = append(c.rules, newRule(counted, drop))
	} else {
		c.rules = append(c.rules, newRule(goTo(first.String()+"-"+o.String())))
	}
	c.entries = []element{{set: choosers[o], key: native(uint32(chosen)), verdict: verdict{expr.VerdictGoto, c.name}}}
	return c
}

// learner is the chain that remembers clients for so long.
func learner(timeout time.Duration) chain {
	c := chain{name: fmt.Sprintf("learn-%ds", int(timeout/time.Second)), rules: []rule{newRule(noPriority), newRule(jump("recall")), newRule(plainPool)}}
	c.rules = append(c.rules, eachFamily(func(f *family) rule {
		member := hashed(concat(priority, f.daddr, dport), memberModulus, memberSeed, memberOffset)
		return newRule(f.only(), update(unix.NFT_DYNSET_OP_UPDATE, f.clients, concat(priority, f.saddr), member, timeout))
	})...)
	c.entries = []element{{set: learners, key: native(remembered(timeout)), verdict: verdict{expr.VerdictGoto, c.name}}}
	return c
}

// remembered is the value of learn for this time.
func remembered(timeout time.Duration) uint32 {
	return learning<<28 | uint32(timeout/time.Second)
}
