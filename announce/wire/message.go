package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// MaxName is the longest name of a node.
	MaxName = 253
	// SignatureLength is that of the signature behind a message.
	SignatureLength = 16
	// HeadLength is that of a message without the node's name, entries and signature.
	HeadLength = 4 + 1 + 1 + 8 + 8 + 4 + 1 + 1
	// MaxLength is the smallest MTU of IPv6, without Ethernet's header.
	MaxLength = 1280 - EtherHead
	// EtherHead is the length of Ethernet's header.
	EtherHead = 14
)

// Format is a kind of messages.
type Format struct {
	Magic   [4]byte
	Version byte
	Entries int // at most in one message
}

// Head is what all messages say.
type Head struct {
	Flags byte
	// Incarnation is when the sender began, in nanoseconds since 1970; Sequence counts its
	// messages.
	Incarnation, Sequence uint64
	Counter               uint32 // of what the format says
	Node                  string
}

// Errors of messages that are not taken in.
var (
	ErrNone      = errors.New("read message: it is none")
	ErrSignature = errors.New("read message: it isn't signed with this cluster's key")
)

// Write writes a message and signs it. All nodes of a cluster have the key.
func Write[E any](f *Format, h Head, entries []E, write func(E, []byte) []byte, key []byte) ([]byte, error) {
	if len(h.Node) == 0 || len(h.Node) > MaxName {
		return nil, fmt.Errorf("write message: node name of %d bytes", len(h.Node))
	}
	if len(entries) > f.Entries {
		return nil, fmt.Errorf("write message: %d entries", len(entries))
	}
	b := append(append([]byte(nil), f.Magic[:]...), f.Version, h.Flags)
	b = binary.BigEndian.AppendUint64(b, h.Incarnation)
	b = binary.BigEndian.AppendUint64(b, h.Sequence)
	b = binary.BigEndian.AppendUint32(b, h.Counter)
	b = append(append(b, byte(len(h.Node))), h.Node...)
	b = append(b, byte(len(entries)))
	for _, e := range entries {
		b = write(e, b)
	}
	return Sign(b, key), nil
}

// Read reads a message, checks its signature, and returns the length of both. Ethernet pads
// short frames, so what follows is the caller's. The reader of an entry returns its length, 0
// if there is none.
func Read[E any](f *Format, b, key []byte, read func([]byte) (E, int)) (h Head, entries []E, length int, err error) {
	if len(b) < HeadLength || [4]byte(b[:4]) != f.Magic || b[4] != f.Version {
		return h, nil, 0, ErrNone
	}
	const nameAt = HeadLength - 1
	name := int(b[nameAt-1])
	if name == 0 || len(b) < nameAt+name+1 {
		return h, nil, 0, ErrNone
	}
	h = Head{
		Flags: b[5], Incarnation: binary.BigEndian.Uint64(b[6:]), Sequence: binary.BigEndian.Uint64(b[14:]),
		Counter: binary.BigEndian.Uint32(b[22:]), Node: string(b[nameAt : nameAt+name]),
	}
	at := nameAt + name + 1
	for range int(b[at-1]) {
		e, n := read(b[at:])
		if n == 0 {
			return h, nil, 0, ErrNone
		}
		entries = append(entries, e)
		at += n
	}
	if err := Check(b, at, key); err != nil {
		return h, nil, 0, err
	}
	return h, entries, at + SignatureLength, nil
}

// Sign adds a signature.
func Sign(b, key []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(b)
	return append(b, h.Sum(nil)[:SignatureLength]...)
}

// Check checks the signature at a place, of all before it.
func Check(b []byte, at int, key []byte) error {
	if len(b) < at+SignatureLength {
		return ErrNone
	}
	signed := Sign(b[:at:at], key)
	if !hmac.Equal(signed[at:], b[at:at+SignatureLength]) {
		return ErrSignature
	}
	return nil
}

// Flags is a byte of the flags that are set.
func Flags(set ...bool) (b byte) {
	for i, is := range set {
		if is {
			b |= 1 << i
		}
	}
	return b
}
