package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

const (
	// MaxName is the longest name of a node.
	MaxName = 253
	// MaxLength is the smallest MTU of IPv6, without Ethernet's header.
	MaxLength = 1280 - EtherHead
	// EtherHead is the length of Ethernet's header.
	EtherHead = 14
	// Overhead is what a frame has beside its node's name, entries and extra bytes, with the
	// signatures of a rotation.
	Overhead = headLength + 1 + 1 + 2 + mostKeys*signatureLength

	// The magic, version, flags, length of what is signed, incarnation, sequence, counter and MAC.
	headLength = 4 + 1 + 1 + 2 + 8 + 8 + 4 + 6
	// The version of all formats. l2/responder/bpf/responder.c knows it and the places of the
	// head, too.
	version = 2
)

// Format is a kind of frames. Write appends an entry. Read reads one and returns its length, 0 if
// there is none.
type Format[E any] struct {
	Magic   [4]byte
	Entries int // at most in one frame
	Write   func(E, []byte) []byte
	Read    func([]byte) (E, int)
}

// Head is what all frames say.
type Head struct {
	Flags byte
	// Incarnation is the number of the sender's process; Sequence counts its frames.
	Incarnation, Sequence uint64
	Counter               uint32 // of what the format says
	MAC                   [6]byte
	Node                  string
}

// Message is what a frame says. Extra is what the format has beside entries.
type Message[E any] struct {
	Head
	Entries []E
	Extra   []byte
}

// Errors of frames that are not believed.
var (
	ErrNone      = errors.New("read frame: it is none")
	ErrSignature = errors.New("read frame: it isn't signed with this cluster's key")
)

// Marshal writes a message and signs it.
func (f *Format[E]) Marshal(m *Message[E], keys *Keys) ([]byte, error) {
	if len(m.Node) == 0 || len(m.Node) > MaxName {
		return nil, fmt.Errorf("write frame: node name of %d bytes", len(m.Node))
	}
	if len(m.Entries) > f.Entries {
		return nil, fmt.Errorf("write frame: %d entries", len(m.Entries))
	}
	b := append(append(make([]byte, 0, MaxLength), f.Magic[:]...), version, m.Flags, 0, 0)
	b = binary.BigEndian.AppendUint64(b, m.Incarnation)
	b = binary.BigEndian.AppendUint64(b, m.Sequence)
	b = binary.BigEndian.AppendUint32(b, m.Counter)
	b = append(b, m.MAC[:]...)
	b = append(append(b, byte(len(m.Node))), m.Node...)
	b = append(b, byte(len(m.Entries)))
	for _, e := range m.Entries {
		b = f.Write(e, b)
	}
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(m.Extra))), m.Extra...)
	binary.BigEndian.PutUint16(b[6:], uint16(len(b)))
	return keys.sign(b), nil
}

// Unmarshal reads a message. Nothing of it is looked at before its signature is found right.
// Ethernet pads short frames, so what follows the signatures is left alone.
func (f *Format[E]) Unmarshal(b []byte, keys *Keys) (*Message[E], error) {
	if len(b) < headLength || [4]byte(b[:4]) != f.Magic || b[4] != version {
		return nil, ErrNone
	}
	signed := int(binary.BigEndian.Uint16(b[6:]))
	if signed < headLength || len(b) < signed+signatureLength {
		return nil, ErrNone
	}
	if !keys.check(b, signed) {
		return nil, ErrSignature
	}
	return f.read(b[:signed])
}

func (f *Format[E]) read(b []byte) (*Message[E], error) {
	m := &Message[E]{Head: Head{
		Flags: b[5], Incarnation: binary.BigEndian.Uint64(b[8:]), Sequence: binary.BigEndian.Uint64(b[16:]),
		Counter: binary.BigEndian.Uint32(b[24:]), MAC: [6]byte(b[28:]),
	}}
	name, b, ok := cut(b[headLength:], 1)
	if !ok || len(name) == 0 || len(b) == 0 {
		return nil, ErrNone
	}
	m.Node = string(name)
	count := int(b[0])
	b = b[1:]
	for range count {
		e, n := f.Read(b)
		if n == 0 {
			return nil, ErrNone
		}
		m.Entries, b = append(m.Entries, e), b[n:]
	}
	extra, b, ok := cut(b, 2)
	if !ok || len(b) > 0 {
		return nil, ErrNone
	}
	if len(extra) > 0 {
		m.Extra = append([]byte(nil), extra...)
	}
	return m, nil
}

// cut takes bytes off that follow their length, which itself has one byte or two.
func cut(b []byte, size int) (part, rest []byte, ok bool) {
	if len(b) < size {
		return nil, nil, false
	}
	n := int(b[0])
	if size == 2 {
		n = int(binary.BigEndian.Uint16(b))
	}
	if len(b) < size+n {
		return nil, nil, false
	}
	return b[size : size+n], b[size+n:], true
}

// Ethernet is the header of a frame.
func Ethernet(to, from net.HardwareAddr, kind uint16) []byte {
	b := append(append(make([]byte, 0, 128), to...), from...)
	return binary.BigEndian.AppendUint16(b, kind)
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
