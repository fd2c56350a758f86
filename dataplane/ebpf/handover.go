package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
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

// heldAtOnce is how many connections change hands at a time. Packets of theirs that
// come meanwhile are dropped, to be sent again.
const heldAtOnce = 1000

// translation is a connection as it is on both sides of the node.
type translation struct {
	proto            model.Protocol
	own              bool // of a socket of the node
	unnamed          bool // its first packet hasn't left yet, so the source isn't known
	client, frontend netip.AddrPort
	backend, source  netip.AddrPort // source is what the backend sees
	between          netip.AddrPort // and this what netfilter does: the client, perhaps with another port (begin.h, place)
	idle             uint32         // seconds for which it may be silent
}

// handOver gives netfilter the connections that the programs translate, for the
// plane that has come into force. New ones are that one's from now on.
func (p *packetPath) handOver(conns *connTable, now phase) error {
	if err := now.set(aside); err != nil {
		return err
	}
	kernel.Quiesce()
	all, err := conns.translations()
	if err != nil {
		return err
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(all)), heldAtOnce) {
		some := map[uint64]translation{}
		for _, id := range ids {
			some[id] = all[id]
		}
		if err := conns.handOver(some); err != nil {
			return err
		}
	}
	return nil
}

// handOver holds connections, has netfilter translate them from now on, and lets
// go of them. Those of which nothing has left the node yet begin anew, with the other
// plane, when their first packet is sent again. UDP flows aren't held, since nobody sends their packets again:
// netfilter gives those that come meanwhile another port.
func (t *connTable) handOver(some map[uint64]translation) error {
	keys, err := t.hold(some)
	if err != nil {
		return err
	}
	kernel.Quiesce()
	for _, one := range some {
		err := one.forget()
		if err == nil && !one.unnamed {
			err = one.give()
		}
		if noConntrack(err) {
			break // without NAT in this kernel nobody can have them
		}
		if err != nil {
			return fmt.Errorf("hand over connection %s > %s: %w", one.client, one.frontend, err)
		}
	}
	for i := range keys {
		if err := t.m.remove(&keys[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete connection: %w", err)
		}
	}
	return nil
}

// hold has the programs drop what comes of connections, and lists all entries.
func (t *connTable) hold(some map[uint64]translation) (keys []tcTuple, err error) {
	held := map[tcTuple]tcConn{}
	err = t.each(func(key *tcTuple, e *tcConn) {
		if _, ok := some[e.Id]; !ok {
			return
		}
		keys = append(keys, *key)
		if key.Proto != unix.IPPROTO_UDP {
			e.Flags |= connHeld
			held[*key] = *e
		}
	})
	if err != nil {
		return nil, err
	}
	for key, e := range held {
		if err := t.m.update(&key, &e, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("hold connection: %w", err)
		}
	}
	return keys, nil
}

// forget has conntrack forget what it has seen of a connection: the client talking
// to the backend, or, if it is the node's own, to the frontend. And that the port is
// reserved by which the backend knows it.
func (t translation) forget() error {
	from, to := t.between, t.backend
	if t.own {
		from, to = t.client, t.frontend
	}
	err := t.delete(from, to)
	if t.hidden() {
		err = errors.Join(err, t.delete(t.source, t.backend))
	}
	return err
}

// delete deletes conntrack's entry that has a packet from src to dst, in either direction.
func (t translation) delete(src, dst netip.AddrPort) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: t.family(), Version: nl.NFNETLINK_V0})
	req.AddData(ctTuple(nl.CTA_TUPLE_ORIG, t.proto, src, dst))
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func (t translation) family() uint8 {
	if t.client.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// translations are the connections in the table that both ends still keep, or that
// they are about to make.
func (t *connTable) translations() (map[uint64]translation, error) {
	all, groups := map[uint64]translation{}, map[uint64]*connection{}
	err := t.each(func(key *tcTuple, e *tcConn) {
		if e.Flags&connNetfilters != 0 {
			return // has them already
		}
		c := groups[e.Id]
		if c == nil {
			c = &connection{}
			groups[e.Id] = c
		}
		c.add(key, e)
		one := all[e.Id]
		one.proto = model.Protocol(key.Proto)
		switch {
		case e.Flags&connUnnamed != 0:
			one.unnamed = true
		case e.Flags&connAnswer != 0:
		case e.Flags&connCounted != 0:
			one.client, one.frontend, one.backend = key.source(), key.destination(), e.To.destination()
			one.own, one.between = e.Flags&connOwn != 0, e.To.source()
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
		one := all[id]
		if one.idle = c.timeout(); !one.client.IsValid() || one.idle == tcpReset || one.idle == tcpClosed {
			delete(all, id)
			continue
		}
		all[id] = one
	}
	return all, nil
}

// give has netfilter have a connection. What is in the way can't be one that works,
// since the packets have been the programs' until now: what is left of an earlier
// connection from the same port, or a new one that netfilter has given the port by
// which the backend knows this one. But of UDP flows, which aren't held, it is what has
// come meanwhile.
func (t translation) give() error {
	err := t.create()
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if t.proto != model.UDP {
		if err := errors.Join(t.delete(t.client, t.frontend), t.delete(t.backend, t.source)); err != nil {
			return err
		}
		err = t.create()
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// create makes netfilter's entry of a connection: as it came, with what to make of
// it.
func (t translation) create() error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: t.family(), Version: nl.NFNETLINK_V0})
	req.AddData(ctTuple(nl.CTA_TUPLE_ORIG, t.proto, t.client, t.frontend))
	req.AddData(ctTuple(nl.CTA_TUPLE_REPLY, t.proto, t.frontend, t.client))
	req.AddData(ctNAT(ctaNatDst, t.backend))
	if t.source != t.client {
		req.AddData(ctNAT(ctaNatSrc, t.source))
	}
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(ipsConfirmed|ipsSeenReply|ipsAssured)))
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(t.idle)))
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
