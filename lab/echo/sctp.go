package echo

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// KeepToOnePath stops heartbeats of an SCTP socket's associations. Both ends tell
// each other all their addresses, and heartbeats try those soon after the
// beginning, with the port numbers that they know. Behind a Service, whose port
// is another one than the endpoint's, nobody has such an association: the answer
// is an ABORT, which ends the whole (RFC 9260, sections 5.4 and 8.4).
func KeepToOnePath(fd int) error {
	// struct sctp_paddrparams of linux/sctp.h, which is packed.
	const (
		peerAddrParams = 9 // SCTP_PEER_ADDR_PARAMS
		size           = 156
		flagsAt        = 146
		hbDisable      = 1 << 1 // SPP_HB_DISABLE
	)
	var params [size]byte
	binary.NativeEndian.PutUint32(params[flagsAt:], hbDisable)
	return os.NewSyscallError("setsockopt", unix.SetsockoptString(fd, unix.IPPROTO_SCTP, peerAddrParams, string(params[:])))
}
