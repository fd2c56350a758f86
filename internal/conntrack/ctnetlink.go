package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The parts of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h
// that the nl package has no name for.
const (
	ctaFilter          = 25      // CTA_FILTER, since Linux 5.8; older kernels ignore it
	ctaFilterOrigFlags = 1       // CTA_FILTER_ORIG_FLAGS
	filterByProtocol   = 1 << 3  // CTA_FILTER_FLAG_CTA_PROTO_NUM
	ipsSeenReply       = 1 << 1  // IPS_SEEN_REPLY
	ipsFixedTimeout    = 1 << 10 // IPS_FIXED_TIMEOUT
)

// maxListings is how often an inconsistent listing is tried.
const maxListings = 5

// Result counts what a sweep has done.
type Result struct {
	Seen      int // flows looked at
	Forgotten int // flows deleted
	Expiring  int // flows given a deadline
}

// Run carries the sweep out in the network namespace of the calling thread. A
// nil sweep does nothing. Flows are looked at one after the other as the
// kernel lists them; only those to be changed are kept.
func (s *Sweep) Run(ctx context.Context) (Result, error) {
	var result Result
	if s == nil {
		return result, nil
	}
	for _, k := range s.kinds {
		if err := ctx.Err(); err != nil {
			return result, err
		}
		if err := s.sweep(k, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// RunAndTell is Run, which tells how many entries it deleted or gave an end, and
// how long it took. A nil sweep has nothing to tell.
func (s *Sweep) RunAndTell(ctx context.Context, tell func(entries int, took time.Duration)) error {
	began := time.Now()
	result, err := s.Run(ctx)
	if s != nil && tell != nil {
		tell(result.Forgotten+result.Expiring, time.Since(began))
	}
	return err
}

// sweep lists and changes the flows of a kind. A listing that the kernel calls
// inconsistent (its table was resized meanwhile) is acted upon and then repeated.
func (s *Sweep) sweep(k kind, result *Result) error {
	for attempt := 1; ; attempt++ {
		var stale []staleFlow
		listErr := list(k, func(e entry) {
			if !slices.Contains(s.protos, e.Proto) {
				return
			}
			result.Seen++
			if fate := s.Fate(&e.Flow); fate != (Fate{}) && (fate.Forget || e.Status&ipsFixedTimeout == 0) {
				stale = append(stale, staleFlow{e.clone(), fate})
			}
		})
		if listErr != nil && !errors.Is(listErr, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("list flows: %w", listErr)
		}
		if err := change(stale, result); err != nil {
			return err
		}
		if listErr == nil || attempt == maxListings {
			return listErr
		}
	}
}

// Flows calls visit for the flows of all protocols that Services have. Flows that
// come and go meanwhile may be missing, others may be visited again.
func Flows(ctx context.Context, visit func(*Flow)) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := list(everything, func(e entry) {
			switch e.Proto {
			case model.TCP, model.UDP, model.SCTP:
				visit(&e.Flow)
			}
		})
		if err == nil {
			return nil
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) || attempt == maxListings {
			return fmt.Errorf("list flows: %w", err)
		}
	}
}

func change(stale []staleFlow, result *Result) error {
	for _, f := range stale {
		if err := f.apply(); err != nil {
			return err
		}
		if f.fate.Forget {
			result.Forgotten++
		} else {
			result.Expiring++
		}
	}
	return nil
}

// entry is a flow with what the kernel needs to find it again.
type entry struct {
	Flow
	orig, id, zone []byte // attributes as received
}

func (e entry) clone() entry {
	for _, b := range []*[]byte{&e.orig, &e.id, &e.zone} {
		*b = append([]byte(nil), *b...)
	}
	return e
}

type staleFlow struct {
	entry
	fate Fate
}

// apply deletes the flow or fixes its end. One that is gone meanwhile is no
// error.
func (f staleFlow) apply() error {
	command, flags, verb := nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, "forget"
	if !f.fate.Forget {
		command, flags, verb = nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_REPLACE, "expire"
	}
	req := request(familyOf(f.Client.Addr()), command, flags)
	req.AddData(nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.orig))
	if f.zone != nil {
		req.AddData(nl.NewRtAttr(nl.CTA_ZONE, f.zone))
	}
	if f.fate.Forget {
		if f.id != nil {
			req.AddData(nl.NewRtAttr(nl.CTA_ID, f.id)) // not a new flow in the old one's place
		}
	} else {
		// The kernel sets the timeout first and the status that fixes it then
		// (ctnetlink_change_conntrack).
		seconds := uint32((f.fate.Expire + time.Second - 1) / time.Second)
		req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(seconds)))
		req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(f.Status|ipsFixedTimeout)))
	}
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s flow %s %s > %s: %w", verb, f.Proto, f.Client, f.Frontend, permission(err))
	}
	return nil
}

func request(family uint8, command, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|command, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

// kind are the flows to list: those of one protocol and family, or all.
type kind struct {
	family uint8
	proto  model.Protocol
}

// everything are all flows, of other protocols than Services have, too.
var everything = kind{}

func familyOf(a netip.Addr) uint8 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// list calls visit for the flows of a kind. What visit gets is valid during the
// call only. For each listing the kernel walks through its whole table, which
// all network namespaces share: that of an idle machine has 262,144 buckets and
// takes it 10 ms. So what is wanted of several kinds had better be listed once
// as everything; the kernel doesn't offer to leave protocols out of both families.
func list(k kind, visit func(entry)) error {
	req := request(k.family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	if k != everything {
		tuple := nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, nil)
		number := tuple.AddRtAttr(nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, nil)
		number.AddRtAttr(nl.CTA_PROTO_NUM, []byte{uint8(k.proto)})
		req.AddData(tuple)
		filter := nl.NewRtAttr(ctaFilter|unix.NLA_F_NESTED, nil)
		filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(filterByProtocol))
		req.AddData(filter)
	}
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if e, ok := parse(msg); ok && (k == everything || e.Proto == k.proto) {
			visit(e)
		}
		return true
	})
	return permission(err)
}

// permission says more clearly what some of the kernel's answers mean.
func permission(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &kernel.MissingError{What: "CAP_NET_ADMIN", Err: err}
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return &kernel.MissingError{What: "ctnetlink (CONFIG_NF_CT_NETLINK)", Since: "2.6.14", Err: err}
	}
	return err
}

// parse reads a flow out of a ctnetlink message.
func parse(msg []byte) (e entry, ok bool) {
	if len(msg) < nl.SizeofNfgenmsg {
		return e, false
	}
	for typ, data := range attributes(msg[nl.SizeofNfgenmsg:]) {
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			e.orig = data
			e.Client, e.Frontend, e.Proto, ok = parseTuple(data)
			if !ok {
				return e, false
			}
		case nl.CTA_TUPLE_REPLY:
			e.Backend, e.Source, _, ok = parseTuple(data)
			if !ok {
				return e, false
			}
		case nl.CTA_PROTOINFO:
			e.TCPState = parseTCPState(data)
		case nl.CTA_STATUS:
			if len(data) == 4 {
				e.Status = binary.BigEndian.Uint32(data)
			}
		case nl.CTA_TIMEOUT:
			if len(data) == 4 {
				e.Expires = binary.BigEndian.Uint32(data)
			}
		case nl.CTA_ID:
			e.id = data
		case nl.CTA_ZONE:
			e.zone = data
		}
	}
	e.Replied = e.Status&ipsSeenReply != 0
	return e, e.Client.IsValid() && e.Backend.IsValid()
}

func parseTCPState(data []byte) (state uint8) {
	for typ, nested := range attributes(data) {
		if typ != nl.CTA_PROTOINFO_TCP {
			continue
		}
		for inner, value := range attributes(nested) {
			if inner == nl.CTA_PROTOINFO_TCP_STATE && len(value) == 1 {
				state = value[0]
			}
		}
	}
	return state
}

func parseTuple(data []byte) (src, dst netip.AddrPort, proto model.Protocol, ok bool) {
	var from, to netip.Addr
	var sport, dport uint16
	for typ, nested := range attributes(data) {
		for inner, value := range attributes(nested) {
			switch typ<<8 | inner {
			case nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V4_SRC, nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V6_SRC:
				from, _ = netip.AddrFromSlice(value)
			case nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V4_DST, nl.CTA_TUPLE_IP<<8 | nl.CTA_IP_V6_DST:
				to, _ = netip.AddrFromSlice(value)
			case nl.CTA_TUPLE_PROTO<<8 | nl.CTA_PROTO_NUM:
				if len(value) == 1 {
					proto = model.Protocol(value[0])
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
	return netip.AddrPortFrom(from, sport), netip.AddrPortFrom(to, dport), proto, from.IsValid() && to.IsValid()
}

// attributes walks over netlink attributes; it ends at the first broken one.
func attributes(data []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(data) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(data))
			if size < unix.SizeofNlAttr || size > len(data) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(data[2:])&nl.NLA_TYPE_MASK, data[unix.SizeofNlAttr:size]) {
				return
			}
			data = data[min((size+3)&^3, len(data)):]
		}
	}
}
