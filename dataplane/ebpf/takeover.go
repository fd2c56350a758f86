package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// takeOver gives the programs the connections that netfilter translates for
// another plane. The netfilter entries are to be forgotten (see forgetTaken)
// when the programs run: they would be in the way of what the kernel sees then.
func (p *packetPath) takeOver(want *model.Table) (taken, error) {
	all := taken{}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := p.netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if noConntrack(err) {
			return nil, nil
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list flows: %w", err)
		}
		for i, f := range flows {
			t, ok := translatedBy(f, want)
			if !ok {
				continue
			}
			if err := p.adopt(t, uint64(time.Now().UnixNano())<<8|uint64(i&0xff), want.Settings); err != nil {
				return nil, err
			}
			all[t] = true
		}
	}
	return all, nil
}

// noConntrack reports whether an error says that there is no conntrack here.
func noConntrack(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// translation is a connection as it is on both sides of the node.
type translation struct {
	proto            model.Protocol
	client, frontend netip.AddrPort
	backend, source  netip.AddrPort // source is what the backend sees
}

// taken are connections that were netfilter's.
type taken map[translation]bool

// translatedBy reads a flow of netfilter's that leads through a frontend.
func translatedBy(f *netlink.ConntrackFlow, want *model.Table) (translation, bool) {
	t := translationOf(f)
	front := want.Frontend(model.Key{Addr: t.frontend.Addr(), Port: t.frontend.Port(), Proto: t.proto})
	return t, front != nil && t.frontend != t.backend
}

func translationOf(f *netlink.ConntrackFlow) translation {
	at := func(ip []byte, port uint16) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a.Unmap(), port)
	}
	return translation{
		proto:  model.Protocol(f.Forward.Protocol),
		client: at(f.Forward.SrcIP, f.Forward.SrcPort), frontend: at(f.Forward.DstIP, f.Forward.DstPort),
		backend: at(f.Reverse.SrcIP, f.Reverse.SrcPort), source: at(f.Reverse.DstIP, f.Reverse.DstPort),
	}
}

// adopt makes the entries of a connection, as bpf/begin.h does.
func (p *packetPath) adopt(t translation, id uint64, settings *model.Settings) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	c := tcConn{Id: id, Seen: now, Steps: stepUsed | stepAnswers}
	if slices.Contains(settings.NodeAddrs, t.client.Addr()) {
		return p.adoptOwn(t, c)
	}
	entries := []struct {
		hook     uint8
		from, to netip.AddrPort // what packets look like
		newFrom  netip.AddrPort // and what they become
		newTo    netip.AddrPort
		flags    uint8
	}{
		{atEgress, t.backend, t.client, t.frontend, t.client, connAnswer | connCounted},
		{atIngress, t.client, t.frontend, t.client, t.backend, connCounted},
		{atIngress, t.backend, t.source, t.backend, t.client, connAnswer},
		{atEgress, t.client, t.backend, t.source, t.backend, 0},
	}
	if t.source == t.client {
		entries = entries[:2]
	}
	for _, e := range entries {
		c.Flags = e.flags
		if err := p.conns.putNew(tupleOf(t.proto, e.hook, e.from, e.to), tupleOf(t.proto, 0, e.newFrom, e.newTo), c); err != nil {
			return err
		}
	}
	return nil
}

// adoptOwn makes those of a connection of the node itself.
func (p *packetPath) adoptOwn(t translation, c tcConn) error {
	c.Flags = connAnswer | connCounted | connOwn
	if err := p.conns.putNew(tupleOf(t.proto, atIngress, t.backend, t.source), tupleOf(t.proto, 0, t.frontend, t.client), c); err != nil {
		return err
	}
	c.Flags = connCounted | connOwn
	return p.conns.putNew(tupleOf(t.proto, atEgress, t.client, t.frontend), tupleOf(t.proto, 0, t.source, t.backend), c)
}

// putNew adds an entry, unless there is one.
func (t *connTable) putNew(key, to tcTuple, c tcConn) error {
	c.To = to
	if err := t.m.Update(&key, &c, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("add connection: %w", err)
	}
	return nil
}

// forgetTaken removes netfilter's entries of connections that were taken over.
func (p *packetPath) forgetTaken(all taken) error {
	if len(all) == 0 {
		return nil
	}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, err := p.netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, all)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("forget flows: %w", err)
		}
	}
	return nil
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (t taken) MatchConntrackFlow(f *netlink.ConntrackFlow) bool { return t[translationOf(f)] }

func tupleOf(proto model.Protocol, hook uint8, src, dst netip.AddrPort) tcTuple {
	t := tcTuple{Proto: uint8(proto), Hook: hook, Sport: bigEndian16(src.Port()), Dport: bigEndian16(dst.Port())}
	from, to := src.Addr().As16(), dst.Addr().As16()
	for i := range t.Src.Word {
		t.Src.Word[i], t.Dst.Word[i] = native32(from[4*i:]), native32(to[4*i:])
	}
	return t
}

// bigEndian16 turns a port round: objects are for little-endian machines only.
func bigEndian16(n uint16) uint16 { return n<<8 | n>>8 }
