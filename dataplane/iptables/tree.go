package iptables

import "slices"

// tree spreads the rules of many keys over small chains, so that a packet
// passes a number of rules that grows with the logarithm of the number of
// keys, and one that belongs to none of them passes a handful.
//
// It is a binary trie without one-way branches over the bits of the keys. A
// subtree becomes a chain of its own where its size falls below the next power
// of four; those of at most four keys are listed where they are. So the depth
// in chains is bounded by the number of keys alone, which matters because
// nf_tables follows at most 16 jumps, and a new key changes the chains on its
// own path at most, nearly always just the last. The shape depends on nothing
// but the set of keys: a plane that starts again makes the same chains.
type tree struct {
	addrBits int
	table    string   // "nat" or "filter"
	root     string   // the chain at the top
	branch   string   // what the names of the others begin with
	verb     string   // "-j", or "-g" where falling off the end must not lead back
	tail     []string // at the end of every chain
	level    int      // of the chain at the top
	// rules are the rules for one key, for a chain whose keys share so many
	// bits.
	rules func(leaf *leaf, sharedBits int) []string

	top     *node
	touched map[place]bool
	bulk    bool // all chains will be made anyway: nothing is noted
}

// leaf is one key with what the tree's owner keeps under it.
type leaf struct {
	key    key
	fronts []*front
}

// node is a leaf or a fork at the first bit in which its keys differ.
type node struct {
	leaf  *leaf // nil in a fork
	bit   int
	count int
	child [2]*node
}

// place names a fork for good: the bits that its keys share.
type place struct {
	key key // with the bits cleared that differ
	bit int
}

// class is the number of times a count can be divided by four until four are
// left.
func class(count int) int {
	c := 0
	for ; count > 4; count /= 4 {
		c++
	}
	return c
}

// some is a key of the subtree: its leftmost.
func (n *node) some() *key {
	for n.leaf == nil {
		n = n.child[0]
	}
	return &n.leaf.key
}

func (n *node) place() place {
	var p place
	p.bit = n.bit
	copy(p.key[:], masked(n.some()[:], n.bit))
	return p
}

// chained reports whether a fork is a chain of its own, given the fork above.
func (t *tree) chained(n, parent *node) bool {
	if n.leaf != nil || class(n.count) == 0 || class(n.count) == class(parent.count) {
		return false
	}
	// Below a full address, keys of several protocols have no match in common.
	return parent.bit < t.addrBits || n.bit >= t.addrBits+protoBits
}

// get returns the leaf with this key, or nil.
func (t *tree) get(k key) *leaf {
	n := t.top
	for n != nil && n.leaf == nil {
		n = n.child[k.bit(n.bit)]
	}
	if n == nil || n.leaf.key != k {
		return nil
	}
	return n.leaf
}

// put adds a leaf or replaces the one with its key.
func (t *tree) put(l *leaf) {
	if t.top == nil {
		t.touch(l.key)
		t.top = &node{leaf: l, count: 1}
		return
	}
	n := t.top
	for n.leaf == nil {
		n = n.child[l.key.bit(n.bit)]
	}
	diff := l.key.firstDifference(&n.leaf.key)
	t.touch(l.key)
	if diff < 0 {
		n.leaf = l
		return
	}
	at := &t.top
	for (*at).leaf == nil && (*at).bit < diff {
		(*at).count++
		at = &(*at).child[l.key.bit((*at).bit)]
	}
	fork := &node{bit: diff, count: (*at).count + 1}
	side := l.key.bit(diff)
	fork.child[side], fork.child[1-side] = &node{leaf: l, count: 1}, *at
	*at = fork
	t.touch(l.key)
}

// drop removes the leaf with this key, if there is one.
func (t *tree) drop(k key) {
	if t.get(k) == nil {
		return
	}
	t.touch(k)
	at := &t.top
	var fork **node // the one above
	for (*at).leaf == nil {
		(*at).count--
		fork, at = at, &(*at).child[k.bit((*at).bit)]
	}
	if fork == nil {
		t.top = nil
		return
	}
	*fork = (*fork).child[1-k.bit((*fork).bit)]
	t.touch(k)
}

// touch notes all chains whose content may depend on the key: forks on its way
// and those beside it, which become chains or cease to be when a count above
// them changes.
func (t *tree) touch(k key) {
	if t.bulk {
		return
	}
	if t.touched == nil {
		t.touched = map[place]bool{}
	}
	for n := t.top; n != nil && n.leaf == nil; n = n.child[k.bit(n.bit)] {
		t.touched[n.place()] = true
		for _, c := range n.child {
			if c.leaf == nil && class(c.count) > 0 {
				t.touched[c.place()] = true
			}
		}
	}
}

// touchAll notes every chain.
func (t *tree) touchAll() {
	if t.bulk {
		return
	}
	t.each(func(n *node) {
		if n != t.top {
			t.touched[n.place()] = true
		}
	})
}

// each visits all chains: the top first, then depth first.
func (t *tree) each(visit func(*node)) {
	if t.top == nil {
		return
	}
	if t.touched == nil {
		t.touched = map[place]bool{}
	}
	visit(t.top)
	var walk func(n *node)
	walk = func(n *node) {
		if n.leaf != nil {
			return
		}
		for _, c := range n.child {
			if t.chained(c, n) {
				visit(c)
			}
			walk(c)
		}
	}
	walk(t.top)
}

// find returns the fork at a place if it is a chain of its own.
func (t *tree) find(p place) *node {
	var parent *node
	n := t.top
	for n != nil && n.leaf == nil && n.bit < p.bit {
		parent, n = n, n.child[p.key.bit(n.bit)]
	}
	if parent == nil || n == nil || n.leaf != nil || n.place() != p || !t.chained(n, parent) {
		return nil
	}
	return n
}

func (t *tree) name(p place) string { return dispatchName(t.branch, t.addrBits, p.key, p.bit) }

// content is the rules of a chain: the way to smaller chains first.
func (t *tree) content(n *node) []string {
	var jumps, listed []string
	if n == nil {
		return slices.Clone(t.tail)
	}
	var walk func(c, parent *node)
	walk = func(c, parent *node) {
		switch {
		case c.leaf != nil:
			listed = append(listed, t.rules(c.leaf, n.sharedBits(t))...)
		case parent != nil && t.chained(c, parent):
			jumps = append(jumps, c.some().match(t.addrBits, c.bit, n.sharedBits(t))+" "+t.verb+" "+t.name(c.place()))
		default:
			walk(c.child[0], c)
			walk(c.child[1], c)
		}
	}
	walk(n, nil)
	return append(append(jumps, listed...), t.tail...)
}

// sharedBits is how many bits are settled once a packet is in the node's
// chain: none at the top, which is entered by every packet.
func (n *node) sharedBits(t *tree) int {
	if n == t.top {
		return 0
	}
	return n.bit
}
