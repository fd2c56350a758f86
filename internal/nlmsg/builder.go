package nlmsg

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Builder is a netlink message in the making.
type Builder []byte

// Add appends an attribute.
func (w *Builder) Add(typ uint16, data []byte) {
	w.Header(typ, len(data))
	*w = append(*w, data...)
	w.Pad()
}

// Text appends an attribute that ends with a zero.
func (w *Builder) Text(typ uint16, s string) {
	w.Header(typ, len(s)+1)
	*w = append(*w, s...)
	*w = append(*w, 0)
	w.Pad()
}

// Number appends an attribute of 32 bits in network order.
func (w *Builder) Number(typ uint16, v uint32) {
	w.Header(typ, 4)
	*w = binary.BigEndian.AppendUint32(*w, v)
}

// Header appends the header of an attribute with so many bytes.
func (w *Builder) Header(typ uint16, size int) {
	*w = binary.NativeEndian.AppendUint16(*w, uint16(unix.SizeofNlAttr+size))
	*w = binary.NativeEndian.AppendUint16(*w, typ)
}

// Pad ends an attribute where the next one may begin.
func (w *Builder) Pad() {
	for len(*w)%4 != 0 {
		*w = append(*w, 0)
	}
}

// Open begins a nested attribute; Close ends it, given what Open returned.
func (w *Builder) Open(typ uint16) int {
	at := len(*w)
	w.Header(typ|unix.NLA_F_NESTED, 0)
	return at
}

// Close ends a nested attribute.
func (w *Builder) Close(at int) {
	binary.NativeEndian.PutUint16((*w)[at:], uint16(len(*w)-at))
}
