package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

// The messages of ctnetlink, as far as flows of Services need them. What the nl package
// has no name for is of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_tcp.h.
const (
	ctaNATSource      = 6  // CTA_NAT_SRC
	ctaNATDestination = 13 // CTA_NAT_DST
	ctaNATv4MinIP     = 1  // CTA_NAT_V4_MINIP
	ctaNATProto       = 3  // CTA_NAT_PROTO
	ctaNATv6MinIP     = 4  // CTA_NAT_V6_MINIP
	ctaNATPortMin     = 1  // CTA_PROTONAT_PORT_MIN

	ctaTupleZone = 3 // CTA_TUPLE_ZONE

	ctaCountersOriginal = 9  // CTA_COUNTERS_ORIG
	ctaCountersReply    = 10 // CTA_COUNTERS_REPLY
	ctaCountersBytes    = 2  // CTA_COUNTERS_BYTES

	ctaProtoInfoSCTP = 3 // CTA_PROTOINFO_SCTP
	ctaSCTPState     = 1 // CTA_PROTOINFO_SCTP_STATE
	ctaSCTPTagOut    = 2 // CTA_PROTOINFO_SCTP_VTAG_ORIGINAL
	ctaSCTPTagBack   = 3 // CTA_PROTOINFO_SCTP_VTAG_REPLY

	tcpBeLiberal = 0x08 // IP_CT_TCP_FLAG_BE_LIBERAL
)

// zone is the zone that a flow is in, for packets of one direction or of both.
type zone struct {
	id         uint16
	directions uint8
}

const (
	originals      = 1
	replies        = 2
	bothDirections = originals | replies
)

// of is the zone that stands in the tuple of a direction: 0 if none does.
func (z zone) of(direction uint8) uint16 {
	if z.directions == direction {
		return z.id
	}
	return 0
}

// sctpState is what conntrack knows of an association beside its addresses.
type sctpState struct {
	state   uint8
	out, in uint32 // the verification tags of both directions
}

// tuple is one direction of a flow.
type tuple struct {
	src, dst netip.AddrPort
	proto    model.Protocol
	zone     uint16
}

func request(family uint8, command, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|command, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

// decode reads a flow out of a message. It reports whether there is one in it.
func (f *Flow) decode(msg []byte) bool {
	if len(msg) < nl.SizeofNfgenmsg {
		return false
	}
	for typ, value := range nlmsg.Attributes(msg[nl.SizeofNfgenmsg:]).All() {
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			t := decodeTuple(value)
			f.Client, f.Frontend, f.Proto = t.src, t.dst, t.proto
			f.inZone(t.zone, originals)
		case nl.CTA_TUPLE_REPLY:
			t := decodeTuple(value)
			f.Backend, f.Source = t.src, t.dst
			f.inZone(t.zone, replies)
		case nl.CTA_PROTOINFO:
			f.decodeState(value)
		case nl.CTA_STATUS:
			f.Status = value.Number()
		case nl.CTA_TIMEOUT:
			f.Expires = value.Number()
		case nl.CTA_MARK:
			f.Mark = value.Number()
		case nl.CTA_ID:
			f.id = value.Number()
		case ctaCountersOriginal:
			f.Counted, f.In = true, value.Get(ctaCountersBytes).Long()
		case ctaCountersReply:
			f.Counted, f.Out = true, value.Get(ctaCountersBytes).Long()
		case nl.CTA_ZONE:
			if len(value) == 2 {
				f.inZone(binary.BigEndian.Uint16(value), bothDirections)
			}
		}
	}
	f.Replied = f.Status&SeenReply != 0
	for _, end := range []netip.AddrPort{f.Frontend, f.Backend, f.Source} {
		if !end.IsValid() || end.Addr().Is4() != f.Client.Addr().Is4() {
			return false
		}
	}
	return f.Client.IsValid()
}

func (f *Flow) inZone(id uint16, directions uint8) {
	if id != 0 {
		f.zone = zone{id, f.zone.directions | directions}
	}
}

func (f *Flow) decodeState(info nlmsg.Attributes) {
	if state := info.Get(nl.CTA_PROTOINFO_TCP).Get(nl.CTA_PROTOINFO_TCP_STATE); len(state) == 1 {
		f.TCPState = state[0]
	}
	sctp := info.Get(ctaProtoInfoSCTP)
	if state := sctp.Get(ctaSCTPState); len(state) == 1 {
		f.sctp = sctpState{state[0], sctp.Uint32(ctaSCTPTagOut), sctp.Uint32(ctaSCTPTagBack)}
	}
}

// encodeState says in which state a connection is; nil if nothing is known of it.
func (f *Flow) encodeState() *nl.RtAttr {
	info := nl.NewRtAttr(nl.CTA_PROTOINFO|unix.NLA_F_NESTED, nil)
	switch {
	case f.Proto == model.TCP:
		tcp := info.AddRtAttr(nl.CTA_PROTOINFO_TCP|unix.NLA_F_NESTED, nil)
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{f.TCPState})
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, []byte{tcpBeLiberal, tcpBeLiberal})
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, []byte{tcpBeLiberal, tcpBeLiberal})
	case f.Proto == model.SCTP && f.sctp.state != 0:
		sctp := info.AddRtAttr(ctaProtoInfoSCTP|unix.NLA_F_NESTED, nil)
		sctp.AddRtAttr(ctaSCTPState, []byte{f.sctp.state})
		sctp.AddRtAttr(ctaSCTPTagOut, nl.BEUint32Attr(f.sctp.out))
		sctp.AddRtAttr(ctaSCTPTagBack, nl.BEUint32Attr(f.sctp.in))
	default:
		return nil
	}
	return info
}

// decodeTuple reads a direction. An address that is missing or broken is invalid.
func decodeTuple(list nlmsg.Attributes) tuple {
	var t tuple
	var src, dst netip.Addr
	var sport, dport uint16
	for typ, nested := range list.All() {
		if typ == ctaTupleZone && len(nested) == 2 {
			t.zone = binary.BigEndian.Uint16(nested)
			continue
		}
		for inner, value := range nested.All() {
			switch typ<<8 | inner {
			case nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V4_SRC, nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V6_SRC:
				src, _ = netip.AddrFromSlice(value)
			case nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V4_DST, nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V6_DST:
				dst, _ = netip.AddrFromSlice(value)
			case nl.CTA_TUPLE_PROTO<<8 | nl.CTA_PROTO_NUM:
				if len(value) == 1 {
					t.proto = model.Protocol(value[0])
				}
			case nl.CTA_TUPLE_PROTO<<8 | nl.CTA_PROTO_SRC_PORT:
				if len(value) == 2 {
					sport = binary.BigEndian.Uint16(value)
				}
			case nl.CTA_TUPLE_PROTO<<8 | nl.CTA_PROTO_DST_PORT:
				if len(value) == 2 {
					dport = binary.BigEndian.Uint16(value)
				}
			}
		}
	}
	t.src, t.dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return t
}

func (t tuple) encode(typ int) *nl.RtAttr {
	src, dst := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if t.src.Addr().Is6() {
		src, dst = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	list := nl.NewRtAttr(typ|unix.NLA_F_NESTED, nil)
	ip := list.AddRtAttr(nl.CTA_TUPLE_IP|unix.NLA_F_NESTED, nil)
	ip.AddRtAttr(src, t.src.Addr().AsSlice())
	ip.AddRtAttr(dst, t.dst.Addr().AsSlice())
	ports := list.AddRtAttr(nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(t.proto)})
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(t.src.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(t.dst.Port()))
	if t.zone != 0 {
		list.AddRtAttr(ctaTupleZone, nl.BEUint16Attr(t.zone))
	}
	return list
}

// encodeNAT is a range of one address and port: the kernel takes the end of a range to
// be its beginning if it isn't said (nf_nat_ipv4_nlattr_to_range).
func encodeNAT(typ int, to netip.AddrPort) *nl.RtAttr {
	first := ctaNATv4MinIP
	if to.Addr().Is6() {
		first = ctaNATv6MinIP
	}
	list := nl.NewRtAttr(typ|unix.NLA_F_NESTED, nil)
	list.AddRtAttr(first, to.Addr().AsSlice())
	list.AddRtAttr(ctaNATProto|unix.NLA_F_NESTED, nil).AddRtAttr(ctaNATPortMin, nl.BEUint16Attr(to.Port()))
	return list
}
