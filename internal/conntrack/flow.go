package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// Flow is what the kernel remembers of one connection. It is a value: nothing in it
// belongs to the message that it was read from.
type Flow struct {
	Proto    model.Protocol
	Client   netip.AddrPort // who began it, as it arrived
	Frontend netip.AddrPort // where its first packet was sent
	Backend  netip.AddrPort // who answers; Frontend if it isn't translated
	Source   netip.AddrPort // what the backend sees of the client; Client if it isn't masqueraded
	Replied  bool           // it has seen packets both ways
	TCPState uint8          // TCP_CONNTRACK_* (linux/netfilter/nf_conntrack_tcp.h), for TCP
	Status   uint32         // IPS_* bits (linux/netfilter/nf_conntrack_common.h)
	Expires  uint32         // seconds until it is forgotten if nothing passes
	Mark     uint32
	// Counted says that In (from the client) and Out are bytes: only where conntrack counts
	// (net.netfilter.nf_conntrack_acct).
	Counted bool
	In, Out uint64

	id   uint32 // the kernel's number for the entry, 0 if it isn't known
	zone zone
	sctp sctpState
}

// Status bits and states that callers ask for or set (linux/netfilter/
// nf_conntrack_common.h, nf_conntrack_tcp.h).
const (
	SeenReply = 1 << 1 // IPS_SEEN_REPLY
	Assured   = 1 << 2 // IPS_ASSURED: not dropped early when the table is full
	DstNAT    = 1 << 5 // IPS_DST_NAT: conntrack itself translates the destination

	TCPEstablished = 3
	TCPTimeWait    = 7
	TCPClose       = 8

	confirmed    = 1 << 3  // IPS_CONFIRMED
	fixedTimeout = 1 << 10 // IPS_FIXED_TIMEOUT
)

// Translated reports whether the flow's destination was replaced.
func (f *Flow) Translated() bool { return f.Frontend != f.Backend }

// Ended reports whether nothing can be said over the connection any more, which
// conntrack remembers for a while. Most are, where connections are short.
func (f *Flow) Ended() bool {
	return f.Proto == model.TCP && (f.TCPState == TCPTimeWait || f.TCPState == TCPClose)
}

// String names the flow by its first packet.
func (f *Flow) String() string { return fmt.Sprintf("%s %s > %s", f.Proto, f.Client, f.Frontend) }

// Insert makes conntrack's entry of a flow, in the network namespace of the calling
// thread. Conntrack translates its packets from now on. It takes of f the addresses, the
// state, the time until it expires, mark and zone, and of the status SeenReply, Assured
// and whether the timeout is fixed. The windows of TCP are not known, so packets outside of
// them count as valid. The error is EEXIST if there is an entry with one of f's tuples.
func (f *Flow) Insert() error {
	req := f.request(nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	// The kernel works the translation out from a reply that is not translated yet
	// (ctnetlink_setup_nat).
	req.AddData(tuple{f.Frontend, f.Client, f.Proto, f.zone.of(replies)}.encode(nl.CTA_TUPLE_REPLY))
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(f.Status&(SeenReply|Assured|fixedTimeout)|confirmed)))
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(f.Expires)))
	req.AddData(encodeNAT(ctaNATDestination, f.Backend))
	if f.Source != f.Client {
		req.AddData(encodeNAT(ctaNATSource, f.Source))
	}
	if f.Mark != 0 {
		req.AddData(nl.NewRtAttr(nl.CTA_MARK, nl.BEUint32Attr(f.Mark)))
	}
	if info := f.encodeState(); info != nil {
		req.AddData(info)
	}
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
		return fmt.Errorf("insert flow %s to %s: %w", f, f.Backend, permission(err))
	}
	return nil
}

// Delete deletes conntrack's entry of a flow. It is no error if it isn't there.
func (f *Flow) Delete() error {
	req := f.request(nl.IPCTNL_MSG_CT_DELETE, 0)
	if f.id != 0 {
		req.AddData(nl.NewRtAttr(nl.CTA_ID, nl.BEUint32Attr(f.id))) // not a new flow in the old one's place
	}
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("forget flow %s: %w", f, permission(err))
	}
	return nil
}

// Clear deletes whichever entry conntrack has that begins with the flow's first packet,
// also if it is another connection's by now. It is no error if there is none.
func (f *Flow) Clear() error {
	whichever := *f
	whichever.id = 0
	return whichever.Delete()
}

// Forget deletes conntrack's entry that has packets from src to dst, in either
// direction. It is no error if there is none.
func Forget(proto model.Protocol, src, dst netip.AddrPort) error {
	return (&Flow{Proto: proto, Client: src, Frontend: dst}).Delete()
}

// request begins a message about the flow.
func (f *Flow) request(command, flags int) *nl.NetlinkRequest {
	req := request(familyOf(f.Client.Addr()), command, flags|unix.NLM_F_ACK)
	req.AddData(tuple{f.Client, f.Frontend, f.Proto, f.zone.of(originals)}.encode(nl.CTA_TUPLE_ORIG))
	if f.zone.directions == bothDirections {
		req.AddData(nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(f.zone.id)))
	}
	return req
}
