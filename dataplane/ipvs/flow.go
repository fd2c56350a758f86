package ipvs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/model"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// flow is a connection in conntrack's eyes, with what it takes to make it anew
// as one that conntrack translates.
type flow struct {
	orig, reply tuple
	rawOrig     []byte // attributes as received
	timeout     []byte
	mark, zone  []byte
	protoinfo   []byte
	status      uint32
}

type tuple struct {
	src, dst netip.AddrPort
	proto    model.Protocol
}

// Attributes and bits that the nl package lacks (linux/netfilter/
// nfnetlink_conntrack.h, nf_conntrack_common.h, nf_conntrack_tcp.h).
const (
	ctaNATSource      = 6
	ctaNATDestination = 13
	ctaNATv4MinIP     = 1
	ctaNATProto       = 3
	ctaNATv6MinIP     = 4
	ctaNATPortMin     = 1

	statusKept      = 1<<1 | 1<<2 | 1<<10 // IPS_SEEN_REPLY, IPS_ASSURED, IPS_FIXED_TIMEOUT
	statusConfirmed = 1 << 3
	statusDstNAT    = 1 << 5

	tcpTimeWait = 7 // TCP_CONNTRACK_TIME_WAIT, TCP_CONNTRACK_CLOSE
	tcpClose    = 8
	tcpLiberal  = 0x08 // IP_CT_TCP_FLAG_BE_LIBERAL: the new entry knows no windows
)

// flows lists the connections that IPVS translates for the servers: conntrack
// knows of another end than where they were sent, and not by its own doing. Those
// that have ended are left out, as making them anew would hold up the others.
//
// When IPVS forgets a connection, it takes conntrack's entry of the same client's port
// and virtual server away (ip_vs_conn_drop_conntrack), whoever's it is by now: if a
// client has used its port again within the two minutes for which IPVS remembers it,
// that is a connection which the next plane has translated. So these are made anew, too.
func (a *actual) flows() ([]flow, error) {
	var list []flow
	text, err := connections()
	if err != nil {
		return nil, err
	}
	known := remembered(text)
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := conntrackRequest(family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
			f, ok := parseFlow(msg)
			if !ok || f.orig.dst == f.reply.src || f.ended() {
				return true
			}
			if f.status&statusDstNAT != 0 && !known[f.orig.inList()] {
				return true
			}
			key := model.Key{Addr: f.orig.dst.Addr(), Port: f.orig.dst.Port(), Proto: f.orig.proto}
			if a.servers[keyServer(key)] != nil {
				list = append(list, f)
			}
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("list connections: %w", err)
		}
	}
	return list, nil
}

func conntrackRequest(family uint8, command, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|command, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

func parseFlow(msg []byte) (f flow, ok bool) {
	if len(msg) < nl.SizeofNfgenmsg {
		return f, false
	}
	for typ, value := range attributes(msg[nl.SizeofNfgenmsg:]) {
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			f.rawOrig, f.orig = bytes.Clone(value), parseTuple(value)
		case nl.CTA_TUPLE_REPLY:
			f.reply = parseTuple(value)
		case nl.CTA_TIMEOUT:
			f.timeout = bytes.Clone(value)
		case nl.CTA_MARK:
			f.mark = bytes.Clone(value)
		case nl.CTA_ZONE:
			f.zone = bytes.Clone(value)
		case nl.CTA_PROTOINFO:
			f.protoinfo = bytes.Clone(value)
		case nl.CTA_STATUS:
			if len(value) == 4 {
				f.status = binary.BigEndian.Uint32(value)
			}
		}
	}
	return f, f.orig.src.IsValid() && f.reply.src.IsValid()
}

func parseTuple(data []byte) tuple {
	var t tuple
	var src, dst netip.Addr
	var sport, dport uint16
	for typ, nested := range attributes(data) {
		for inner, value := range attributes(nested) {
			switch {
			case typ == nl.CTA_TUPLE_IP && (inner == nl.CTA_IP_V4_SRC || inner == nl.CTA_IP_V6_SRC):
				src, _ = netip.AddrFromSlice(value)
			case typ == nl.CTA_TUPLE_IP && (inner == nl.CTA_IP_V4_DST || inner == nl.CTA_IP_V6_DST):
				dst, _ = netip.AddrFromSlice(value)
			case typ == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_NUM && len(value) == 1:
				t.proto = model.Protocol(value[0])
			case typ == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_SRC_PORT && len(value) == 2:
				sport = binary.BigEndian.Uint16(value)
			case typ == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_DST_PORT && len(value) == 2:
				dport = binary.BigEndian.Uint16(value)
			}
		}
	}
	t.src, t.dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return t
}

// ended reports whether nothing can be said over the connection any more, which
// conntrack remembers for a while. Most are, where connections are short.
func (f flow) ended() bool {
	if f.orig.proto != model.TCP {
		return false
	}
	for _, info := range attributes(f.protoinfo) {
		for typ, value := range attributes(info) {
			if typ == nl.CTA_PROTOINFO_TCP_STATE && len(value) == 1 {
				return value[0] == tcpTimeWait || value[0] == tcpClose
			}
		}
	}
	return false
}

// translate makes conntrack's entry anew, translated. The kernel works the
// translation out from a reply that is not translated yet
// (ctnetlink_setup_nat).
func (f flow) translate() error {
	err := f.replace()
	for tries := 0; errors.Is(err, unix.EEXIST) && tries < 3; tries++ {
		err = f.replace() // a packet has just made one
	}
	if errors.Is(err, unix.EEXIST) {
		return nil // another connection has its place, or its backend's end of it
	}
	return err
}

func (f flow) replace() error {
	family := uint8(unix.AF_INET)
	if f.orig.src.Addr().Is6() {
		family = unix.AF_INET6
	}
	old := conntrackRequest(family, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	old.AddData(nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.rawOrig))
	if _, err := old.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("take over connection %s > %s: %w", f.orig.src, f.orig.dst, err)
	}
	req := conntrackRequest(family, nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	req.AddData(nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.rawOrig))
	req.AddData(tupleAttr(nl.CTA_TUPLE_REPLY, tuple{f.orig.dst, f.orig.src, f.orig.proto}))
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, big32(f.status&statusKept|statusConfirmed)))
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, f.timeout))
	req.AddData(natAttr(ctaNATDestination, f.reply.src))
	if f.reply.dst != f.orig.src {
		req.AddData(natAttr(ctaNATSource, f.reply.dst))
	}
	if f.mark != nil {
		req.AddData(nl.NewRtAttr(nl.CTA_MARK, f.mark))
	}
	if f.zone != nil {
		req.AddData(nl.NewRtAttr(nl.CTA_ZONE, f.zone))
	}
	if f.protoinfo != nil {
		req.AddData(nl.NewRtAttr(nl.CTA_PROTOINFO|unix.NLA_F_NESTED, f.protocolState()))
	}
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
		return fmt.Errorf("hand over connection %s > %s to %s: %w", f.orig.src, f.orig.dst, f.reply.src, err)
	}
	return nil
}

// protocolState is the state that the connection is in; for TCP without
// windows.
func (f flow) protocolState() []byte {
	if f.orig.proto != model.TCP {
		return f.protoinfo
	}
	tcp := nl.NewRtAttr(nl.CTA_PROTOINFO_TCP|unix.NLA_F_NESTED, nil)
	for _, info := range attributes(f.protoinfo) {
		for typ, value := range attributes(info) {
			if typ == nl.CTA_PROTOINFO_TCP_STATE {
				tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, value)
			}
		}
	}
	tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, []byte{tcpLiberal, tcpLiberal})
	tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, []byte{tcpLiberal, tcpLiberal})
	return tcp.Serialize()
}

func tupleAttr(typ int, t tuple) *nl.RtAttr {
	src, dst := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if t.src.Addr().Is6() {
		src, dst = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	attr := nl.NewRtAttr(typ|unix.NLA_F_NESTED, nil)
	ip := attr.AddRtAttr(nl.CTA_TUPLE_IP|unix.NLA_F_NESTED, nil)
	ip.AddRtAttr(src, t.src.Addr().AsSlice())
	ip.AddRtAttr(dst, t.dst.Addr().AsSlice())
	proto := attr.AddRtAttr(nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(t.proto)})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, t.src.Port()))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, t.dst.Port()))
	return attr
}

func natAttr(typ int, to netip.AddrPort) *nl.RtAttr {
	minimum := ctaNATv4MinIP
	if to.Addr().Is6() {
		minimum = ctaNATv6MinIP
	}
	attr := nl.NewRtAttr(typ|unix.NLA_F_NESTED, nil)
	attr.AddRtAttr(minimum, to.Addr().AsSlice())
	port := attr.AddRtAttr(ctaNATProto|unix.NLA_F_NESTED, nil)
	port.AddRtAttr(ctaNATPortMin, binary.BigEndian.AppendUint16(nil, to.Port()))
	return attr
}
