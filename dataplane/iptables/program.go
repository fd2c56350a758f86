package iptables

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
)

// pieceSize is how many lines (chains and rules) go into one piece of input:
// those of about 120 Services with five endpoints. The time that
// iptables-nft-restore takes grows with the square of its input, whatever is
// installed already, and each transaction costs the kernel some, too.
const pieceSize = 2500

// pieceOf is how large pieces are with a variant: iptables-legacy-restore reads
// and replaces a whole table each time, however little of it changes.
func pieceOf(v iptables.Variant) int {
	if v == iptables.NFT {
		return pieceSize
	}
	return math.MaxInt
}

// inputs is what iptables-restore is to be fed with, in this order. It is one
// for all but very large changes of the nft variant; in those, chains come
// before the chains that refer to them, so that each piece leaves everything
// in working order.
func (p *plan) inputs(v iptables.Variant) [][]byte {
	if p.empty() {
		return nil
	}
	size := pieceOf(v)
	if p.lines() <= size {
		return [][]byte{p.whole()}
	}
	refusals, nat := p.refusals.pieces("filter", p, size), p.nat.pieces("nat", p, size)
	inputs := append(refusals, nat...)
	if p.natFirst {
		inputs = append(nat, refusals...)
	}
	return append(inputs, p.rest.pieces("filter", &plan{}, size)...)
}

// whole is all of the plan as one input, each table in force at once. The legacy
// variant pays for the whole table with each block.
func (p *plan) whole() []byte {
	var in iptables.Input
	refusals := func() {
		b := in.Block("filter")
		p.refusals.write(b, p.refusals.sorted())
		p.lead(b, "filter")
	}
	if !p.natFirst {
		refusals()
	}
	b := in.Block("nat")
	p.nat.write(b, p.nat.sorted())
	p.lead(b, "nat")
	if p.natFirst {
		refusals()
	}
	p.rest.write(in.Block("filter"), p.rest.sorted())
	return in.Bytes()
}

func (p *plan) lines() int { return p.refusals.lines() + p.nat.lines() + p.rest.lines() }

// lines is how long the input is.
func (d delta) lines() int {
	n := len(d)
	for _, c := range d {
		n += len(c.rules)
	}
	return n
}

// chunks cuts a list of chains into pieces of so many lines.
func (d delta) chunks(ids []chainID, size int) iter.Seq[[]chainID] {
	return func(yield func([]chainID) bool) {
		for len(ids) > 0 {
			n, lines := 0, 0
			for n < len(ids) && (n == 0 || lines+1+len(d[ids[n]].rules) <= size) {
				lines += 1 + len(d[ids[n]].rules)
				n++
			}
			if !yield(ids[:n]) {
				return
			}
			ids = ids[n:]
		}
	}
}

// sorted lists the chains: lower levels first, deletions last.
func (d delta) sorted() []chainID {
	type place struct {
		rank int
		id   chainID
	}
	places := make([]place, 0, len(d))
	for id, c := range d {
		rank := c.level
		if c.delete {
			rank = math.MaxInt
		}
		places = append(places, place{rank, id})
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(a.rank-b.rank, strings.Compare(a.id.name, b.id.name))
	})
	ids := make([]chainID, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	return ids
}

// write puts these chains of the delta into a block.
func (d delta) write(b *iptables.Block, ids []chainID) {
	for _, id := range ids {
		if d[id].delete {
			b.DeleteChain(id.name)
		} else {
			b.Chain(id.name, d[id].rules...)
		}
	}
}

// pieces writes a delta of one table as inputs of so many lines. The plan's jumps come
// after the chains they lead to; chains to be deleted are emptied before any is
// deleted, because they refer to each other.
func (d delta) pieces(table string, p *plan, size int) [][]byte {
	var inputs [][]byte
	piece := func(write func(*iptables.Block)) {
		var in iptables.Input
		write(in.Block(table))
		if !in.Empty() {
			inputs = append(inputs, in.Bytes())
		}
	}
	var made, gone []chainID
	for _, id := range d.sorted() {
		if d[id].delete {
			gone = append(gone, id)
		} else {
			made = append(made, id)
		}
	}
	for ids := range d.chunks(made, size) {
		piece(func(b *iptables.Block) { d.write(b, ids) })
	}
	piece(func(b *iptables.Block) { p.lead(b, table) })
	for ids := range d.chunks(gone, size) {
		piece(func(b *iptables.Block) {
			for _, id := range ids {
				b.Chain(id.name)
			}
		})
	}
	for ids := range d.chunks(gone, size) {
		piece(func(b *iptables.Block) { d.write(b, ids) })
	}
	return inputs
}

// lead puts the jumps of a table at the beginning of their chains, in their
// order, and takes the stale ones out.
func (p *plan) lead(b *iptables.Block, table string) {
	for _, j := range slices.Backward(p.jumps) {
		if j.table == table {
			b.Insert(j.chain, j.rule)
		}
	}
	for _, j := range p.stale {
		if j.table == table {
			b.DeleteRule(j.chain, j.rule)
		}
	}
}
