package conntrack

import (
	"context"
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

// How to have the kernel list flows of one kind: what the nl package has no name for in
// linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaFilter          = 25     // CTA_FILTER, since Linux 5.8; older kernels ignore it
	ctaFilterOrigFlags = 1      // CTA_FILTER_ORIG_FLAGS
	filterByProtocol   = 1 << 3 // CTA_FILTER_FLAG_CTA_PROTO_NUM
)

// maxListings is how often an inconsistent listing is tried.
const maxListings = 5

// Result counts what a sweep has done.
type Result struct {
	Seen      int // flows looked at
	Forgotten int // flows deleted
	Expiring  int // flows given a deadline
	Renewed   int // flows whose deadline was taken back
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
		tell(result.Forgotten+result.Expiring+result.Renewed, time.Since(began))
	}
	return err
}

// sweep lists and changes the flows of a kind. A listing that the kernel calls
// inconsistent (its table was resized meanwhile) is acted upon and then repeated.
func (s *Sweep) sweep(k kind, result *Result) error {
	for attempt := 1; ; attempt++ {
		var stale []staleFlow
		listErr := list(k, func(f *Flow) {
			if !slices.Contains(s.protos, f.Proto) {
				return
			}
			result.Seen++
			if fate := s.Fate(f); fate != (Fate{}) && (fate.Forget || fate.Renew || f.Status&fixedTimeout == 0) {
				stale = append(stale, staleFlow{*f, fate})
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

// Flows calls visit for the flows of all protocols that Services have. What visit gets is
// valid during the call only. Flows that
// come and go meanwhile may be missing, others may be visited again.
func Flows(ctx context.Context, visit func(*Flow)) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := list(everything, func(f *Flow) {
			if isServed(f.Proto) {
				visit(f)
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

// isServed reports whether Services have a protocol.
func isServed(p model.Protocol) bool { return p == model.TCP || p == model.UDP || p == model.SCTP }

func change(stale []staleFlow, result *Result) error {
	for i := range stale {
		f := &stale[i]
		if err := f.apply(); err != nil {
			return err
		}
		switch {
		case f.fate.Forget:
			result.Forgotten++
		case f.fate.Renew:
			result.Renewed++
		default:
			result.Expiring++
		}
	}
	return nil
}

type staleFlow struct {
	Flow
	fate Fate
}

// establishedTimeout is for how long an idle connection is remembered, in seconds: what the
// kernel has by default (nf_conntrack_tcp_timeout_established). The next packet sets it anew.
const establishedTimeout = 5 * 24 * 60 * 60

// renew puts an entry without an end in the place of one: the kernel doesn't let one be taken
// back. If a packet comes in between, it gets an entry of its own, which has to go, too.
func (f *staleFlow) renew() error {
	next := f.Flow
	if next.Status &^= fixedTimeout; f.TCPState == TCPEstablished {
		next.Expires = establishedTimeout
	}
	err := f.Delete()
	if err == nil {
		err = next.Insert()
	}
	if errors.Is(err, unix.EEXIST) {
		if err = next.Clear(); err == nil {
			err = next.Insert()
		}
	}
	if err != nil {
		return fmt.Errorf("renew flow %s: %w", f, err)
	}
	return nil
}

// apply deletes the flow, fixes its end or takes that back. One that is gone meanwhile is no
// error.
func (f *staleFlow) apply() error {
	if f.fate.Forget {
		return f.Delete()
	}
	if f.fate.Renew {
		return f.renew()
	}
	req := f.request(nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_REPLACE)
	// The kernel sets the timeout first and the status that fixes it then
	// (ctnetlink_change_conntrack).
	seconds := uint32((f.fate.Expire + time.Second - 1) / time.Second)
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(seconds)))
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(f.Status|fixedTimeout)))
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("expire flow %s: %w", f, permission(err))
	}
	return nil
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
func list(k kind, visit func(*Flow)) error {
	req := request(k.family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	if k != everything {
		original := nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, nil)
		number := original.AddRtAttr(nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, nil)
		number.AddRtAttr(nl.CTA_PROTO_NUM, []byte{uint8(k.proto)})
		req.AddData(original)
		filter := nl.NewRtAttr(ctaFilter|unix.NLA_F_NESTED, nil)
		filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(filterByProtocol))
		req.AddData(filter)
	}
	var f Flow
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		f = Flow{}
		if f.decode(msg) && (k == everything || f.Proto == k.proto) {
			visit(&f)
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
