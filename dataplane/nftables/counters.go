package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

// setElemExpr is NFTA_SET_ELEM_EXPR (linux/netfilter/nf_tables.h).
const setElemExpr = 7

// frontendCounts reads what was counted of frontends.
func (p *Plane) frontendCounts(ctx context.Context) ([]kernel.Count, error) {
	counts := map[model.Key]*kernel.Count{}
	err := p.withReader(ctx, func(s *socket) error {
		for _, own := range []*familySets{v4, v6} {
			for _, c := range []struct {
				set *set
				add func(c *kernel.Count, packets, bytes uint64)
			}{
				{own.connections, func(c *kernel.Count, packets, _ uint64) { c.Connections = packets }},
				{own.refused, func(c *kernel.Count, packets, _ uint64) { c.Refused = packets }},
				{own.bytesIn, func(c *kernel.Count, _, bytes uint64) { c.In = bytes }},
				{own.bytesOut, func(c *kernel.Count, _, bytes uint64) { c.Out = bytes }},
			} {
				err := s.readCounters(c.set, func(k model.Key, packets, bytes uint64) {
					if packets == 0 {
						return
					}
					if counts[k] == nil {
						counts[k] = &kernel.Count{Frontend: k}
					}
					c.add(counts[k], packets, bytes)
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	list := make([]kernel.Count, 0, len(counts))
	for _, c := range counts {
		list = append(list, *c)
	}
	return list, err
}

// packetCounts reads what was counted of all packets.
func (p *Plane) packetCounts(ctx context.Context) (kernel.Packets, error) {
	out := kernel.Packets{}
	err := p.withReader(ctx, func(s *socket) error {
		var w nlmsg.Builder
		w.Text(unix.NFTA_RULE_TABLE, tableName)
		w.Text(unix.NFTA_RULE_CHAIN, "invalid")
		err := s.get(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, w, func(data []byte) {
			out.InvalidDropped += ruleCounter(data, "invalid")
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("list rules: %w", err)
		}
		if !p.loopback.Load() {
			return nil // all of the frontends are a large set
		}
		return s.readCounters(v4.connections, func(k model.Key, packets, _ uint64) {
			if k.Addr.IsLoopback() {
				out.LocalhostNodePorts += packets
			}
		})
	})
	return out, err
}

// withReader gives do a socket beside the one that Apply uses. It is of the
// plane's network namespace if the plane is of the process's.
func (p *Plane) withReader(ctx context.Context, do func(*socket) error) error {
	p.reading.Lock()
	defer p.reading.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.reader == nil {
		return errors.New("read counters: the plane is closed")
	}
	return do(p.reader)
}

// readCounters calls visit for every element with a counter. A set that isn't
// there (yet) has none.
func (s *socket) readCounters(of *set, visit func(k model.Key, packets, bytes uint64)) error {
	var w nlmsg.Builder
	w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	w.Text(unix.NFTA_SET_ELEM_LIST_SET, of.name)
	err := s.get(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, w, func(data []byte) {
		for typ, list := range nlmsg.Attributes(data).All() {
			if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, item := range list.All() {
				var key string
				var packets, bytes uint64
				for typ, value := range item.All() {
					switch typ {
					case unix.NFTA_SET_ELEM_KEY:
						key = value0(value)
					case setElemExpr:
						packets, bytes = readCounter(value)
					}
				}
				if k, ok := readKey(key); ok {
					visit(k, packets, bytes)
				}
			}
		}
	})
	// Elements that come while they are listed are no reason to begin again.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("list elements of %s: %w", of.name, err)
	}
	return nil
}

// readCounter reads a counter expression.
func readCounter(data []byte) (packets, bytes uint64) {
	name, attrs := splitExpression(data)
	if name != "counter" {
		return 0, 0
	}
	for typ, value := range nlmsg.Attributes(attrs).All() {
		switch {
		case len(value) != 8:
		case typ == unix.NFTA_COUNTER_PACKETS:
			packets = binary.BigEndian.Uint64(value)
		case typ == unix.NFTA_COUNTER_BYTES:
			bytes = binary.BigEndian.Uint64(value)
		}
	}
	return packets, bytes
}

// ruleCounter is how many packets a rule of a chain has counted. Kernels before
// 4.18 list the rules of all chains.
func ruleCounter(data []byte, of string) (packets uint64) {
	for typ, value := range nlmsg.Attributes(data).All() {
		switch typ {
		case unix.NFTA_RULE_CHAIN:
			if value.Text() != of {
				return 0
			}
		case unix.NFTA_RULE_EXPRESSIONS:
			for _, e := range value.All() {
				n, _ := readCounter(e)
				packets += n
			}
		}
	}
	return packets
}

// readKey reads a frontend's key as keyFields writes it.
func readKey(fields string) (model.Key, bool) {
	n := len(fields) - 8
	addr, ok := netip.AddrFromSlice([]byte(fields[:max(n, 0)]))
	if !ok {
		return model.Key{}, false
	}
	return model.Key{Addr: addr, Proto: model.Protocol(fields[n]), Port: binary.BigEndian.Uint16([]byte(fields[n+4:]))}, true
}
