// Package nlmsg reads and writes netlink messages (struct nlmsghdr, linux/netlink.h) and
// their attributes (struct nlattr and struct rtattr, which have the same layout). It is
// the only walker over them in this project.
//
// Everything read is a slice of the message, nothing is copied. A message comes
// from the kernel, but it may have been cut short, so no length is trusted: a walk
// ends at the first attribute that doesn't fit into what is left.
//   - attributes.go: reads attributes
//   - builder.go: writes them
//   - message.go: takes a datagram apart into messages
//   - bulk.go: sends many messages in one system call
package nlmsg

import (
	"bytes"
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Attributes are attributes one after the other: the body of a message behind its
// header, or the value of an attribute in which others are nested.
type Attributes []byte

// typeMask takes the flags out of a type: that others are nested in the attribute,
// and that its value is big-endian.
const typeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

// All visits the attributes in their order, each as its type without flags and its
// value.
func (l Attributes) All() iter.Seq2[uint16, Attributes] {
	return func(yield func(uint16, Attributes) bool) {
		for len(l) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(l))
			if size < unix.SizeofNlAttr || size > len(l) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(l[2:])&typeMask, l[unix.SizeofNlAttr:size:size]) {
				return
			}
			l = l[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(l)):]
		}
	}
}

// Get returns the value of the first attribute of a type, nil if there is none.
func (l Attributes) Get(typ uint16) Attributes {
	for t, value := range l.All() {
		if t == typ {
			return value
		}
	}
	return nil
}

// String returns an attribute's value as text, "" if it isn't there.
func (l Attributes) String(typ uint16) string { return l.Get(typ).Text() }

// Uint32 returns the number that an attribute holds, 0 if it isn't there.
func (l Attributes) Uint32(typ uint16) uint32 { return l.Get(typ).Number() }

// Uint64 returns the number that an attribute holds, 0 if it isn't there.
func (l Attributes) Uint64(typ uint16) uint64 { return l.Get(typ).Long() }

// Word is a value as text: what comes before its first NUL, without a copy.
func (l Attributes) Word() []byte {
	if i := bytes.IndexByte(l, 0); i >= 0 {
		return l[:i]
	}
	return l
}

// Text is a value as text: what comes before its first NUL.
func (l Attributes) Text() string { return string(l.Word()) }

// Number is a value as a big-endian number of 32 bits, which netfilter's are. It
// is 0 if the value has another size.
func (l Attributes) Number() uint32 {
	if len(l) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(l)
}

// Long is a value as a big-endian number of 64 bits. It is 0 if the value has
// another size.
func (l Attributes) Long() uint64 {
	if len(l) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(l)
}
