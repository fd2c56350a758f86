package redirect

import (
	"net"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Redirected questions reach the server past the guard of the node's address, so these
// rules check the client. What this machine's processes
// ask comes by its loopback.

// toPort53 does something with all that goes to port 53.
func toPort53(then expr.Any) [][]expr.Any {
	var list [][]expr.Any
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		list = append(list, append(port(proto, destinationPort, 53), then))
	}
	return list
}

// guarded sends questions to cluster DNS by the chain strangers, if some may not ask.
func (l *Lease) guarded() [][]expr.Any {
	if len(l.clients) == 0 {
		return nil
	}
	jump := &expr.Verdict{Kind: expr.VerdictJump, Chain: strangers}
	return l.each(func(w way) [][]expr.Any {
		return [][]expr.Any{append(to(w.service), jump), append(to(w.local), jump)}
	})
}

// strangers drops what doesn't come from a client or this machine.
func (l *Lease) strangers() [][]expr.Any {
	if len(l.clients) == 0 {
		return nil
	}
	const loopback = 1 // LOOPBACK_IFINDEX
	returns := &expr.Verdict{Kind: expr.VerdictReturn}
	list := [][]expr.Any{{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(loopback)}, returns,
	}}
	for _, p := range l.clients {
		list = append(list, append(within(p, source), returns))
	}
	return append(list, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
}

// within compares an address with a network.
func within(p netip.Prefix, f field) []expr.Any {
	network := p.Masked().Addr()
	size := uint32(network.BitLen() / 8)
	return join(ofFamily(network), load(network, f), []expr.Any{
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: net.CIDRMask(p.Bits(), network.BitLen()), Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: network.AsSlice()},
	})
}

// ofFamily asks whether a packet is of the family of a.
func ofFamily(a netip.Addr) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if a.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}}}
}
