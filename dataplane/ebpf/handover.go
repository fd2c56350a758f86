package ebpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// What the nl package has no name for: linux/netfilter/nfnetlink_conntrack.h,
// nf_conntrack_common.h and nf_conntrack_tcp.h.
const (
	ctaNatSrc, ctaNatDst           = 6, 13
	ctaNatV4Min, ctaNatV4Max       = 1, 2
	ctaNatProto                    = 3
	ctaNatV6Min, ctaNatV6Max       = 4, 5
	ctaProtoPortMin                = 1
	ctaProtoPortMax                = 2
	ipsSeenReply, ipsAssured       = 1 << 1, 1 << 2
	ipsConfirmed                   = 1 << 3
	tcpStateEstablished            = 3
	tcpBeLiberal             uint8 = 8
)

// handOver gives netfilter the connections that the programs translate, for the
// plane that comes after. It is for the moment before the programs go.
func (p *packetPath) handOver(conns *connTable) error {
	all, err := conns.translations()
	if err != nil || len(all) == 0 {
		return err
	}
	// What netfilter has seen of them is the client talking to the backend.
	seen := taken{}
	for _, t := range all {
		seen[translation{proto: t.proto, client: t.client, frontend: t.backend, backend: t.backend, source: t.client}] = true
	}
	err = p.forgetTaken(seen)
	if noConntrack(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, t := range all {
		err := t.give()
		if noConntrack(err) {
			return nil // without NAT in this kernel nobody can have them
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("hand over connection %s > %s: %w", t.client, t.frontend, err)
		}
	}
	return nil
}

// translations are the connections in the table that both ends still keep.
func (t *connTable) translations() (map[uint64]translation, error) {
	all, groups := map[uint64]translation{}, map[uint64]*connection{}
	err := t.each(func(key *tcTuple, e *tcConn) {
		c := groups[e.Id]
		if c == nil {
			c = &connection{}
			groups[e.Id] = c
		}
		c.add(key, e)
		one := all[e.Id]
		one.proto = model.Protocol(key.Proto)
		switch {
		case e.Flags&(connAnswer|connUnnamed) != 0:
		case e.Flags&connCounted != 0:
			one.client, one.frontend, one.backend = key.source(), key.destination(), e.To.destination()
			if !one.source.IsValid() {
				one.source = e.To.source()
			}
		default:
			one.source = e.To.source()
		}
		all[e.Id] = one
	})
	if err != nil {
		return nil, err
	}
	for id, c := range groups {
		if !all[id].client.IsValid() || c.timeout() < udpOnce || c.proto == unix.IPPROTO_TCP && c.timeout() != tcpEstablished {
			delete(all, id)
		}
	}
	return all, nil
}

// give makes netfilter's entry of a connection: as it came, with what to make of
// it.
func (t translation) give() error {
	family := unix.AF_INET
	if t.client.Addr().Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0})
	req.AddData(ctTuple(nl.CTA_TUPLE_ORIG, t.proto, t.client, t.frontend))
	req.AddData(ctTuple(nl.CTA_TUPLE_REPLY, t.proto, t.frontend, t.client))
	req.AddData(ctNAT(ctaNatDst, t.backend))
	if t.source != t.client {
		req.AddData(ctNAT(ctaNatSrc, t.source))
	}
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(ipsConfirmed|ipsSeenReply|ipsAssured)))
	timeout := uint32(udpStream)
	if t.proto != model.UDP {
		timeout = tcpEstablished
	}
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(timeout)))
	if t.proto == model.TCP {
		req.AddData(ctEstablished())
	}
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

func ctTuple(attr int, proto model.Protocol, src, dst netip.AddrPort) *nl.RtAttr {
	from, to := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if src.Addr().Is6() {
		from, to = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	a := nl.NewRtAttr(attr|unix.NLA_F_NESTED, nil)
	ip := a.AddRtAttr(nl.CTA_TUPLE_IP|unix.NLA_F_NESTED, nil)
	ip.AddRtAttr(from, src.Addr().AsSlice())
	ip.AddRtAttr(to, dst.Addr().AsSlice())
	ports := a.AddRtAttr(nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{uint8(proto)})
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(src.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(dst.Port()))
	return a
}

// ctNAT is a range of one address and port.
func ctNAT(attr int, to netip.AddrPort) *nl.RtAttr {
	low, high := ctaNatV4Min, ctaNatV4Max
	if to.Addr().Is6() {
		low, high = ctaNatV6Min, ctaNatV6Max
	}
	a := nl.NewRtAttr(attr|unix.NLA_F_NESTED, nil)
	a.AddRtAttr(low, to.Addr().AsSlice())
	a.AddRtAttr(high, to.Addr().AsSlice())
	ports := a.AddRtAttr(ctaNatProto|unix.NLA_F_NESTED, nil)
	ports.AddRtAttr(ctaProtoPortMin, nl.BEUint16Attr(to.Port()))
	ports.AddRtAttr(ctaProtoPortMax, nl.BEUint16Attr(to.Port()))
	return a
}

// ctEstablished says that the connection is established, and that its window
// isn't known.
func ctEstablished() *nl.RtAttr {
	a := nl.NewRtAttr(nl.CTA_PROTOINFO|unix.NLA_F_NESTED, nil)
	tcp := a.AddRtAttr(nl.CTA_PROTOINFO_TCP|unix.NLA_F_NESTED, nil)
	tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{tcpStateEstablished})
	tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, []byte{tcpBeLiberal, tcpBeLiberal})
	tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, []byte{tcpBeLiberal, tcpBeLiberal})
	return a
}

var _ netlink.CustomConntrackFilter = taken{}
