package model

import (
	"hash/maphash"
	"iter"
	"math/bits"
)

// shared is an immutable hash map. A changed copy shares every part that the
// change did not touch, so a change costs two small nodes and one leaf, and
// two maps of which one was made from the other are compared by the parts in
// which they differ. The zero value is empty.
//
// Two levels of 64 are enough for what one node holds: a leaf has 12 entries
// at 50,000 and 150 at 600,000.
type shared[K comparable, V comparable] struct {
	root *[fan]*sharedNode[K, V]
	n    int
}

const fan = 64

type sharedNode[K comparable, V comparable] [fan]*sharedLeaf[K, V]

type sharedLeaf[K comparable, V comparable] []sharedEntry[K, V]

type sharedEntry[K comparable, V comparable] struct {
	key   K
	value V
}

// seed is one for all maps: places must agree between tables to be compared.
var seed = maphash.MakeSeed()

// place says in which node and leaf a key belongs.
func place[K comparable](k K) (int, int) {
	h := maphash.Comparable(seed, k)
	return int(h % fan), int(h / fan % fan)
}

func (m shared[K, V]) get(k K) (v V) {
	if m.root == nil {
		return v
	}
	i, j := place(k)
	if node := m.root[i]; node != nil && node[j] != nil {
		for _, e := range *node[j] {
			if e.key == k {
				return e.value
			}
		}
	}
	return v
}

func (m shared[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		if m.root == nil {
			return
		}
		for _, node := range m.root {
			if node == nil {
				continue
			}
			for _, leaf := range node {
				if leaf == nil {
					continue
				}
				for _, e := range *leaf {
					if !yield(e.value) {
						return
					}
				}
			}
		}
	}
}

// sharedEdit is a map in the making: parts are copied when first touched.
type sharedEdit[K comparable, V comparable] struct {
	m     shared[K, V]
	fresh bool        // the root is ours
	owned [fan]uint64 // bit j of word i: leaf i,j is ours; any bit: node i is ours
}

func (m shared[K, V]) edit() *sharedEdit[K, V] { return &sharedEdit[K, V]{m: m} }

func (e *sharedEdit[K, V]) done() shared[K, V] { return e.m }

// leaf returns the leaf i,j as one that may be written.
func (e *sharedEdit[K, V]) leaf(i, j int) *sharedLeaf[K, V] {
	if !e.fresh {
		root := new([fan]*sharedNode[K, V])
		if e.m.root != nil {
			*root = *e.m.root
		}
		e.m.root, e.fresh = root, true
	}
	if e.owned[i] == 0 {
		node := new(sharedNode[K, V])
		if e.m.root[i] != nil {
			*node = *e.m.root[i]
		}
		e.m.root[i] = node
	}
	if bit := uint64(1) << j; e.owned[i]&bit == 0 {
		leaf := new(sharedLeaf[K, V])
		if old := e.m.root[i][j]; old != nil {
			*leaf = append(make(sharedLeaf[K, V], 0, grown(len(*old))), *old...)
		}
		e.m.root[i][j] = leaf
		e.owned[i] |= bit
	}
	return e.m.root[i][j]
}

// grown is the room for n entries and one more, without much waste.
func grown(n int) int { return n + 1 + bits.Len(uint(n))/2 }

func (e *sharedEdit[K, V]) set(k K, v V) {
	i, j := place(k)
	leaf := e.leaf(i, j)
	for x := range *leaf {
		if (*leaf)[x].key == k {
			(*leaf)[x] = sharedEntry[K, V]{k, v}
			return
		}
	}
	*leaf = append(*leaf, sharedEntry[K, V]{k, v})
	e.m.n++
}

func (e *sharedEdit[K, V]) delete(k K) {
	i, j := place(k)
	leaf := e.leaf(i, j)
	for x := range *leaf {
		if (*leaf)[x].key != k {
			continue
		}
		last := len(*leaf) - 1
		(*leaf)[x] = (*leaf)[last]
		(*leaf)[last] = sharedEntry[K, V]{}
		*leaf = (*leaf)[:last]
		e.m.n--
		return
	}
}

// differences calls visit for every key whose value is not the same in both
// maps; a missing value is V's zero value. It skips whatever they share.
func differences[K comparable, V comparable](old, new shared[K, V], visit func(k K, before, after V)) {
	var none [fan]*sharedNode[K, V]
	oldRoot, newRoot := old.root, new.root
	if oldRoot == newRoot {
		return
	}
	if oldRoot == nil {
		oldRoot = &none
	}
	if newRoot == nil {
		newRoot = &none
	}
	for i := range fan {
		if oldRoot[i] != newRoot[i] {
			nodeDifferences(oldRoot[i], newRoot[i], visit)
		}
	}
}

func nodeDifferences[K comparable, V comparable](old, new *sharedNode[K, V], visit func(k K, before, after V)) {
	var none sharedNode[K, V]
	if old == nil {
		old = &none
	}
	if new == nil {
		new = &none
	}
	for j := range fan {
		if old[j] != new[j] {
			leafDifferences(old[j], new[j], visit)
		}
	}
}

func leafDifferences[K comparable, V comparable](old, new *sharedLeaf[K, V], visit func(k K, before, after V)) {
	var zero V
	for _, e := range new.entries() {
		if before := old.find(e.key); before != e.value {
			visit(e.key, before, e.value)
		}
	}
	for _, e := range old.entries() {
		if new.find(e.key) == zero {
			visit(e.key, e.value, zero)
		}
	}
}

func (l *sharedLeaf[K, V]) entries() sharedLeaf[K, V] {
	if l == nil {
		return nil
	}
	return *l
}

func (l *sharedLeaf[K, V]) find(k K) (v V) {
	for _, e := range l.entries() {
		if e.key == k {
			return e.value
		}
	}
	return v
}
