package nftrace

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// Kind is what the kernel tells of.
type Kind uint32

// The kinds of events (enum nft_trace_types).
const (
	Policy Kind = unix.NFT_TRACETYPE_POLICY // the end of a base chain: its policy
	Return Kind = unix.NFT_TRACETYPE_RETURN // the end of another chain, or a rule that returns
	Rule   Kind = unix.NFT_TRACETYPE_RULE   // a rule whose conditions held
	End    Kind = 1 << 8                    // no rule of the chain has decided; its policy or return comes next
)

// Begins is Event.Passed where a packet begins to be followed.
const Begins = "begins"

// Event is one step of a packet.
type Event struct {
	Packet int  // packets are numbered from 1, as they are first seen
	Reply  bool // it is an answer
	// Passed is the hook whose chains the packet has all passed, or Begins; "" for a
	// rule or chain of somebody.
	Passed string

	Family  string // of the table, as nft names it
	Table   string
	Chain   string
	Handle  uint64 // of the rule, 0 if it isn't one
	Kind    Kind
	Verdict string // "accept", "drop", "continue", "jump", ...
	Target  string // the chain of jump and goto
	In, Out int    // interfaces' indexes, 0 for none or if not told
	Mark    uint32
	// Header is told once for each base chain.
	Header *Header
	// Legacy is where the packet is, for a step in a table of iptables-legacy, whose rules
	// nf_tables doesn't know: Handle is then the rule's number in its chain, and the
	// verdict is in the rule's words (LegacyVerdict).
	Legacy *Base `json:",omitempty"`

	id    uint32
	print string // tells the packet from others, wherever it is translated
}

// Header is what a packet's own headers say.
type Header struct {
	Source, Destination netip.AddrPort
	Proto               uint8
	TCPFlags            uint8
}

var families = map[byte]string{
	unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6",
	unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev",
}

// parse reads a message of the kernel; one that isn't a trace gives an Event of
// no packet.
func parse(m netlink.Message) Event {
	const nfgenmsg = 4
	if uint16(m.Header.Type) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE || len(m.Data) < nfgenmsg {
		return Event{}
	}
	e := Event{Family: families[m.Data[0]]}
	var network, transport []byte
	var protocol uint32
	for typ, value := range nlmsg.Attributes(m.Data[nfgenmsg:]).All() {
		switch typ {
		case unix.NFTA_TRACE_TABLE:
			e.Table = value.Text()
		case unix.NFTA_TRACE_CHAIN:
			e.Chain = value.Text()
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.Handle = value.Long()
		case unix.NFTA_TRACE_TYPE:
			e.Kind = Kind(value.Number())
		case unix.NFTA_TRACE_VERDICT:
			e.Verdict, e.Target = verdict(value.Uint32(unix.NFTA_VERDICT_CODE)), value.String(unix.NFTA_VERDICT_CHAIN)
		case unix.NFTA_TRACE_POLICY:
			e.Verdict = verdict(value.Number())
		case unix.NFTA_TRACE_ID:
			e.id = value.Number()
		case unix.NFTA_TRACE_IIF:
			e.In = int(value.Number())
		case unix.NFTA_TRACE_OIF:
			e.Out = int(value.Number())
		case unix.NFTA_TRACE_MARK:
			e.Mark = value.Number()
		case unix.NFTA_TRACE_NFPROTO:
			protocol = value.Number()
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = value
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = value
		}
	}
	if e.Kind == Rule && e.Handle == 0 {
		e.Kind = End
	}
	e.Header = header(protocol, network, transport)
	if e.Header != nil {
		e.print = fingerprint(e.Header.Proto, transport)
	}
	return e
}

// fingerprint is what doesn't change in a transport header when addresses and ports are
// translated: TCP's sequence numbers, what a datagram begins with.
func fingerprint(proto uint8, transport []byte) string {
	from, to := 4, 20
	switch proto {
	case unix.IPPROTO_TCP:
		to = 16 // the checksum changes
	case unix.IPPROTO_UDP:
		from = 8
	}
	if len(transport) < from {
		return ""
	}
	return string(rune(proto)) + string(transport[from:min(to, len(transport))])
}

// verdicts by their codes (linux/netfilter.h, linux/netfilter/nf_tables.h).
var verdicts = map[int32]string{
	-1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return",
	0: "drop", 1: "accept", 2: "stolen", 3: "queue", 4: "repeat",
}

func verdict(code uint32) string {
	n := int32(code)
	if n >= 0 {
		n &= 0xff // NF_VERDICT_MASK: behind it is a number of a queue or an error
	}
	return verdicts[n]
}

// header reads the headers of a packet, as much as the kernel shows of them; nil if
// they aren't shown.
func header(nfproto uint32, network, transport []byte) *Header {
	h := &Header{}
	var source, destination netip.Addr
	switch {
	case nfproto == unix.NFPROTO_IPV4 && len(network) >= 20:
		h.Proto = network[9]
		source, destination = netip.AddrFrom4([4]byte(network[12:16])), netip.AddrFrom4([4]byte(network[16:20]))
	case nfproto == unix.NFPROTO_IPV6 && len(network) >= 40:
		h.Proto = network[6]
		source, destination = netip.AddrFrom16([16]byte(network[8:24])), netip.AddrFrom16([16]byte(network[24:40]))
	default:
		return nil
	}
	var from, to uint16
	switch h.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		if len(transport) >= 4 {
			from, to = binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
		}
		if h.Proto == unix.IPPROTO_TCP && len(transport) >= 14 {
			h.TCPFlags = transport[13]
		}
	}
	h.Source, h.Destination = netip.AddrPortFrom(source, from), netip.AddrPortFrom(destination, to)
	return h
}
