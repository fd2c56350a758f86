// Package nftrace follows packets through the rules of nf_tables, whoever made
// them: nft, iptables-nft, or a data plane. It has the kernel trace the packets of a
// few flows by a table that belongs to this process's socket, so that the kernel
// removes it when the process ends, however it does.
//
//   - table.go: the table, and which packets it has traced
//   - event.go: what the kernel tells of a packet
//   - legacy.go: rules of iptables-legacy, which the kernel tells of elsewhere
//   - ruletext.go, expression.go: rules in words
//   - chains.go: what is known of chains
//
// Everything works in the network namespace of the calling thread.
package nftrace

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Flow says which packets to follow: those that begin a connection. What isn't
// set may be anything.
type Flow struct {
	Proto    model.Protocol
	Client   netip.AddrPort // without a port: any; 0.0.0.0 or :: (see Any) is any of its family
	Frontend netip.AddrPort // as packets arrive, before they are translated; likewise
}

// Any is a port of any address of a family. An address that isn't valid won't do: its port
// is lost in JSON.
func Any(six bool, port uint16) netip.AddrPort {
	if six {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), port)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), port)
}

// isOne reports whether an address is given that isn't any.
func isOne(a netip.Addr) bool { return a.IsValid() && !a.IsUnspecified() }

// TablePrefix begins the names of tables of sessions.
const TablePrefix = "fairway-trace-"

// ErrLost says that the kernel told more than was read, so that something is
// missing.
var ErrLost = errors.New("events came faster than they were read: some are missing")

// Session is a running trace. It ends with Close, or with the process.
type Session struct {
	table   *nftables.Table
	owner   *nftables.Conn // the table lives as long as its socket
	events  *netlink.Conn
	packets map[uint32]*packet // those under way, by the kernel's number
	pending []Event
	seen    int
	legacy  *legacy // nil without tables of iptables-legacy
	missing error   // why their rules aren't told
}

// packet is one that is followed.
type packet struct {
	number int
	reply  bool
	print  string
}

var sessions atomic.Int32 // of this process, for the names of their tables

// Open begins to follow the flows, and with replies what comes back to them, as far
// as conntrack knows the connection: that isn't for modes without conntrack, since it
// would begin to track connections.
func Open(flows []Flow, replies bool) (*Session, error) {
	s := &Session{packets: map[uint32]*packet{}}
	s.table = &nftables.Table{Family: nftables.TableFamilyINet, Name: fmt.Sprintf("%s%d-%d", TablePrefix, os.Getpid(), sessions.Add(1))}
	var err error
	if s.events, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	// Without the right to more, the buffer stays as it is.
	if err := s.events.SetReadBuffer(1 << 20); err != nil && !errors.Is(err, unix.EPERM) {
		return nil, errors.Join(fmt.Errorf("enlarge netlink buffer: %w", err), s.Close())
	}
	if err := s.events.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		return nil, errors.Join(permission("subscribe to traces", err), s.Close())
	}
	if s.legacy, s.missing = openLegacy(); s.missing != nil {
		s.missing = fmt.Errorf("rules of iptables-legacy: %w", s.missing)
	}
	if err := s.makeTable(flows, replies); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Missing says what the session can't tell; nil if nothing.
func (s *Session) Missing() error { return s.missing }

// permission says more clearly what a refusal means.
func permission(what string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		err = &kernel.MissingError{What: "CAP_NET_ADMIN", Err: unix.EPERM}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Next waits for an event of a packet that the session follows. The error is
// os.ErrDeadlineExceeded if none comes in time, and ErrLost if some are missing; the
// session goes on after both.
func (s *Session) Next(deadline time.Time) (Event, error) {
	for len(s.pending) == 0 {
		if err := s.events.SetReadDeadline(s.turn(deadline)); err != nil {
			return Event{}, fmt.Errorf("wait for traces: %w", err)
		}
		messages, err := s.events.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			return Event{}, ErrLost
		case errors.Is(err, os.ErrDeadlineExceeded):
			if s.takeLegacy(); len(s.pending) == 0 && !time.Now().Before(deadline) {
				return Event{}, os.ErrDeadlineExceeded
			}
		case err != nil:
			return Event{}, fmt.Errorf("receive traces: %w", err)
		}
		for _, m := range messages {
			if e, ours := s.assign(parse(m)); ours {
				s.pending = append(s.pending, e)
			}
		}
	}
	e := s.pending[0]
	s.pending = s.pending[1:]
	return e, nil
}

// assign finds out which packet an event is of. A packet is the session's once it
// has passed a rule of the session's table.
func (s *Session) assign(e Event) (Event, bool) {
	switch {
	case e.Table == s.table.Name && e.Kind == Rule:
		s.seen++
		s.packets[e.id] = &packet{number: s.seen, reply: e.Chain == repliesChain, print: e.print}
		e.Passed = Begins
	case e.Table == s.table.Name && strings.HasPrefix(e.Chain, passedPrefix):
		e.Passed = strings.TrimPrefix(e.Chain, passedPrefix)
	case strings.HasPrefix(e.Table, TablePrefix):
		return e, false // another session's
	}
	p := s.packets[e.id]
	if p == nil || e.Table == s.table.Name && e.Passed == "" {
		return e, false
	}
	e.Packet, e.Reply = p.number, p.reply
	return e, true
}

// Close ends the trace, and with it the table.
func (s *Session) Close() error {
	errs := []error{s.legacy.close()}
	s.legacy = nil
	if s.owner != nil {
		errs = append(errs, s.owner.CloseLasting())
		s.owner = nil
	}
	if s.events != nil {
		errs = append(errs, s.events.Close())
		s.events = nil
	}
	return errors.Join(errs...)
}
