package conntrack

import (
	"context"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel/netevents"
)

// The groups of conntrack's events (linux/netfilter/nfnetlink.h).
const (
	groupNew     = 1 // NFNLGRP_CONNTRACK_NEW
	groupDestroy = 3 // NFNLGRP_CONNTRACK_DESTROY
)

// Events is a subscription to flows that begin and end in one network namespace. The
// kernel makes events only while somebody subscribes: those that end are told of if
// they have begun since.
type Events struct{ watch *netevents.Watch }

// Subscribe subscribes in the network namespace of the calling thread.
func Subscribe() (*Events, error) {
	w, err := netevents.OpenNetfilter(groupNew, groupDestroy)
	if err != nil {
		return nil, fmt.Errorf("subscribe to flows: %w", permission(err))
	}
	return &Events{w}, nil
}

// Run calls visit for flows of the protocols that Services have, and lost where the
// kernel has dropped events, until ctx is done. What visit gets is valid during the
// call only.
func (e *Events) Run(ctx context.Context, visit func(f *Flow, ended bool), lost func()) error {
	return e.watch.Run(ctx, netevents.Handler{
		Message: func(m syscall.NetlinkMessage) {
			f, ended, ok := decodeEvent(m)
			if ok {
				visit(f, ended)
			}
		},
		Lost: lost,
	})
}

// decodeEvent reads an event; false if it is about no flow of a Service's protocol.
func decodeEvent(m syscall.NetlinkMessage) (f *Flow, ended, ok bool) {
	switch m.Header.Type {
	case unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_NEW:
	case unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_DELETE:
		ended = true
	default:
		return nil, false, false
	}
	f = &Flow{}
	return f, ended, f.decode(m.Data) && isServed(f.Proto)
}
