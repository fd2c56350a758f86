package nlmsg

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Header is a message's header.
type Header struct {
	Type, Flags uint16
	Seq, PortID uint32
}

// Each calls visit for each message of a datagram, with what is behind its header, until
// visit returns an error.
func Each(data []byte, visit func(Header, []byte) error) error {
	for len(data) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(data))
		if size < unix.SizeofNlMsghdr || size > len(data) {
			return fmt.Errorf("netlink message of %d bytes in %d", size, len(data))
		}
		h := Header{
			Type: binary.NativeEndian.Uint16(data[4:]), Flags: binary.NativeEndian.Uint16(data[6:]),
			Seq: binary.NativeEndian.Uint32(data[8:]), PortID: binary.NativeEndian.Uint32(data[12:]),
		}
		if err := visit(h, data[unix.SizeofNlMsghdr:size]); err != nil {
			return err
		}
		data = data[min((size+3)&^3, len(data)):]
	}
	return nil
}

// Errno is the kernel's answer in an error message; nil is an acknowledgement.
func Errno(body []byte) error {
	if len(body) < 4 {
		return unix.EBADMSG
	}
	if n := int32(binary.NativeEndian.Uint32(body)); n != 0 {
		return unix.Errno(-n)
	}
	return nil
}
