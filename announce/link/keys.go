package link

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"slices"
	"sync/atomic"
	"time"
)

const (
	signatureLength = 16
	// mostKeys are the key and, while it is rotated, the one before.
	mostKeys = 2
)

// Keys are the cluster's keys. A frame has a signature by each of them, and is believed with one
// of any of them: while keys are rotated, nodes that know the new one, the old one or both
// understand each other.
type Keys struct {
	list    atomic.Pointer[[][]byte]
	dropped atomic.Pointer[time.Time]
	out     atomic.Pointer[map[string]bool]
}

// NewKeys returns keys, the newest first.
func NewKeys(list ...[]byte) *Keys {
	k := &Keys{}
	k.Set(list...)
	return k
}

// Set replaces the keys, and reports whether they are others than before.
func (k *Keys) Set(list ...[]byte) (changed bool) {
	next := make([][]byte, 0, mostKeys)
	for _, key := range list[:min(len(list), mostKeys)] {
		next = append(next, bytes.Clone(key))
	}
	before := k.list.Swap(&next)
	if before != nil && slices.ContainsFunc(*before, func(key []byte) bool {
		return !slices.ContainsFunc(next, func(n []byte) bool { return bytes.Equal(n, key) })
	}) {
		now := time.Now()
		k.dropped.Store(&now)
	}
	return before == nil || !slices.EqualFunc(*before, next, bytes.Equal)
}

// Dropped is when a key was last dropped that was good before; zero if none was.
func (k *Keys) Dropped() (at time.Time) {
	if t := k.dropped.Load(); t != nil {
		at = *t
	}
	return at
}

// SetOut says which nodes are out, whatever they sign with, and names those that weren't before.
func (k *Keys) SetOut(nodes []string) (fresh []string) {
	out := map[string]bool{}
	for _, node := range nodes {
		if out[node] = true; !k.IsOut(node) {
			fresh = append(fresh, node)
		}
	}
	k.out.Store(&out)
	return fresh
}

// IsOut reports whether a node is out.
func (k *Keys) IsOut(node string) bool {
	out := k.out.Load()
	return out != nil && (*out)[node]
}

func signature(b, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return h.Sum(nil)[:signatureLength]
}

// sign adds the signatures.
func (k *Keys) sign(b []byte) []byte {
	signed := b[:len(b):len(b)]
	for _, key := range *k.list.Load() {
		b = append(b, signature(signed, key)...)
	}
	return b
}

// check reports whether one of the signatures behind the bytes that are signed is right.
func (k *Keys) check(b []byte, signed int) bool {
	for _, key := range *k.list.Load() {
		want := signature(b[:signed], key)
		for at := signed; at+signatureLength <= min(len(b), signed+mostKeys*signatureLength); at += signatureLength {
			if hmac.Equal(want, b[at:at+signatureLength]) {
				return true
			}
		}
	}
	return false
}
