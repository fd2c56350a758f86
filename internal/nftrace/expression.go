package nftrace

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// kind says how a value is written.
type kind struct {
	write func([]byte) string
	words uint32   // registers of four bytes that it takes; 0 for one
	bits  []string // names of its bits, from the lowest
}

func (k kind) format(data []byte) string {
	if k.write == nil || len(data) == 0 {
		return guess(data)
	}
	return k.write(data)
}

func (k kind) address() bool { return k.words == addr6.words || k.words == 1 }

var (
	addr4    = kind{write: addressText, words: 1}
	addr6    = kind{write: addressText, words: 4}
	port     = kind{write: func(b []byte) string { return fmt.Sprint(bigEndian(b)) }}
	name     = kind{write: func(b []byte) string { return fmt.Sprintf("%q", strings.TrimRight(string(b), "\x00")) }, words: 4}
	native   = kind{write: nativeText("%d")}
	bitset   = kind{write: nativeText("%#x")}
	number   = kind{write: func(b []byte) string { return fmt.Sprint(bigEndian(b)) }}
	protocol = kind{write: func(b []byte) string {
		if text := map[byte]string{1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp"}[b[0]]; text != "" {
			return text
		}
		return fmt.Sprint(b[0])
	}}
	nfproto  = kind{write: func(b []byte) string { return map[byte]string{2: "ipv4", 10: "ipv6"}[b[0]] }}
	states   = bitNames("invalid", "established", "related", "new", "", "", "untracked")
	statuses = bitNames("expected", "seen-reply", "assured", "confirmed", "snat", "dnat")
)

// nativeText writes numbers in the machine's byte order.
func nativeText(format string) func([]byte) string {
	return func(b []byte) string {
		if len(b) != 4 {
			return guess(b)
		}
		return fmt.Sprintf(format, binary.NativeEndian.Uint32(b))
	}
}

// bitNames is a kind whose bits have names.
func bitNames(names ...string) kind {
	return kind{bits: names, write: func(b []byte) string {
		if len(b) != 4 {
			return guess(b)
		}
		var list []string
		for i, text := range names {
			if text != "" && binary.NativeEndian.Uint32(b)&(1<<i) != 0 {
				list = append(list, text)
			}
		}
		return strings.Join(list, ",")
	}}
}

func bigEndian(b []byte) (n uint64) {
	for _, one := range b[:min(len(b), 8)] {
		n = n<<8 | uint64(one)
	}
	return n
}

func addressText(b []byte) string {
	for len(b) < 4 || len(b) > 4 && len(b) < 16 { // a prefix that ends with a byte
		b = append(b[:len(b):len(b)], 0)
	}
	if a, ok := netip.AddrFromSlice(b); ok {
		return a.String()
	}
	return guess(b)
}

// guess writes a value of which nothing is known.
func guess(b []byte) string {
	if len(b) == 0 {
		return "0"
	}
	if len(b) == 4 || len(b) == 16 {
		return addressText(b)
	}
	if len(b) == 2 {
		return fmt.Sprint(bigEndian(b))
	}
	return "0x" + hex.EncodeToString(b)
}

func ones(mask []byte) (n int) {
	for _, b := range mask {
		n += bits.OnesCount8(b)
	}
	return n
}

// metaKeys are what "meta" loads.
var metaKeys = map[uint32]loaded{
	unix.NFT_META_LEN: {text: "meta length", kind: native}, unix.NFT_META_PROTOCOL: {text: "meta protocol"},
	unix.NFT_META_MARK: {text: "meta mark", kind: bitset}, unix.NFT_META_IIF: {text: "iif", kind: native}, unix.NFT_META_OIF: {text: "oif", kind: native},
	unix.NFT_META_IIFNAME: {text: "iifname", kind: name}, unix.NFT_META_OIFNAME: {text: "oifname", kind: name},
	unix.NFT_META_SKUID: {text: "meta skuid", kind: native}, unix.NFT_META_SKGID: {text: "meta skgid", kind: native},
	unix.NFT_META_NFTRACE: {text: "meta nftrace"}, unix.NFT_META_NFPROTO: {text: "meta nfproto", kind: nfproto},
	unix.NFT_META_L4PROTO: {text: "meta l4proto", kind: protocol}, unix.NFT_META_PKTTYPE: {text: "meta pkttype"},
	unix.NFT_META_CGROUP: {text: "meta cgroup", kind: native}, unix.NFT_META_PRIORITY: {text: "meta priority", kind: native},
}

// ctKeys are what "ct" loads.
var ctKeys = map[uint32]loaded{
	unix.NFT_CT_STATE: {text: "ct state", kind: states}, unix.NFT_CT_STATUS: {text: "ct status", kind: statuses},
	unix.NFT_CT_DIRECTION: {text: "ct direction"}, unix.NFT_CT_MARK: {text: "ct mark", kind: bitset},
	unix.NFT_CT_SRC: {text: "ct saddr"}, unix.NFT_CT_DST: {text: "ct daddr"}, unix.NFT_CT_PROTOCOL: {text: "ct protocol", kind: protocol},
	unix.NFT_CT_PROTO_SRC: {text: "ct proto-src", kind: port}, unix.NFT_CT_PROTO_DST: {text: "ct proto-dst", kind: port},
	unix.NFT_CT_ZONE: {text: "ct zone"}, unix.NFT_CT_EXPIRATION: {text: "ct expiration"}, unix.NFT_CT_HELPER: {text: "ct helper"},
	unix.NFT_CT_SRC_IP: {text: "ct ip saddr", kind: addr4}, unix.NFT_CT_DST_IP: {text: "ct ip daddr", kind: addr4},
	unix.NFT_CT_SRC_IP6: {text: "ct ip6 saddr", kind: addr6}, unix.NFT_CT_DST_IP6: {text: "ct ip6 daddr", kind: addr6},
}

// fields of headers by base, offset and length.
var fields = map[[3]uint32]loaded{
	{unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4}: {text: "ip saddr", kind: addr4}, {unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 4}: {text: "ip daddr", kind: addr4},
	{unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 16}: {text: "ip6 saddr", kind: addr6}, {unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16}: {text: "ip6 daddr", kind: addr6},
	{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}: {text: "ip protocol", kind: protocol}, {unix.NFT_PAYLOAD_NETWORK_HEADER, 6, 1}: {text: "ip6 nexthdr", kind: protocol},
	{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2}: {text: "sport", kind: port}, {unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}: {text: "dport", kind: port},
	{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1}: {text: "tcp flags"}, {unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1}: {text: "icmp type", kind: number},
}

// field is what a payload expression loads or writes. Of an address, only the first
// bytes may be compared.
func field(a nlmsg.Attributes) loaded {
	base, offset, size := a.Uint32(unix.NFTA_PAYLOAD_BASE), a.Uint32(unix.NFTA_PAYLOAD_OFFSET), a.Uint32(unix.NFTA_PAYLOAD_LEN)
	if l, ok := fields[[3]uint32{base, offset, size}]; ok {
		return l
	}
	for _, whole := range []uint32{4, 16} {
		if l, ok := fields[[3]uint32{base, offset, whole}]; ok && size < whole {
			l.mask = []byte(strings.Repeat("\xff", int(size)))
			return l
		}
	}
	return loaded{text: fmt.Sprintf("@%s,%d,%d", map[uint32]string{0: "ll", 1: "nh", 2: "th"}[base], 8*offset, 8*size), kind: kind{words: (size + 3) / 4}}
}

// statement reads an expression that does something.
func (d *describer) statement(name string, a nlmsg.Attributes) {
	switch name {
	case "nat":
		d.nat(a)
	case "masq":
		d.say("masquerade")
	case "redir":
		d.say("redirect")
	case "reject":
		d.say("reject with %s", rejection(a.Uint32(unix.NFTA_REJECT_TYPE), a.Get(unix.NFTA_REJECT_ICMP_CODE)))
	case "log":
		if prefix := a.String(unix.NFTA_LOG_PREFIX); prefix != "" {
			d.say("log prefix %q", prefix)
			return
		}
		d.say("log")
	case "limit":
		d.say("limit rate %d/%ds", a.Uint64(unix.NFTA_LIMIT_RATE), a.Uint64(unix.NFTA_LIMIT_UNIT))
	case "match":
		d.match(a)
	case "target":
		d.say("-j %s", a.String(unix.NFTA_TARGET_NAME))
	case "dynset":
		d.say("update @%s { %s }", a.String(unix.NFTA_DYNSET_SET_NAME), d.read(a.Uint32(unix.NFTA_DYNSET_SREG_KEY)))
	case "":
	default:
		d.say("%s", name)
	}
}

// match reads a match of iptables that the package iptables doesn't understand.
func (d *describer) match(a nlmsg.Attributes) {
	name := a.String(unix.NFTA_MATCH_NAME)
	if name == "comment" {
		d.say("-m comment --comment %q", a.String(unix.NFTA_MATCH_INFO))
		return
	}
	d.say("-m %s ...", name)
}

func (d *describer) nat(a nlmsg.Attributes) {
	what := map[uint32]string{unix.NFT_NAT_SNAT: "snat", unix.NFT_NAT_DNAT: "dnat"}[a.Uint32(unix.NFTA_NAT_TYPE)]
	if number := a.Uint32(unix.NFTA_NAT_REG_ADDR_MIN); number != 0 {
		what += " to " + d.registers[slot(number)].text
	}
	if number := a.Uint32(unix.NFTA_NAT_REG_PROTO_MIN); number != 0 {
		if port := d.registers[slot(number)].text; port != "" {
			what += " port " + port
		}
	}
	d.say("%s", what)
}

// Names of ICMP's reasons (nft(8), REJECT STATEMENT), by the type of the rejection:
// of IPv4 or IPv6, and of both.
var (
	reasons  = map[byte]string{0: "net-unreachable", 1: "host-unreachable", 2: "prot-unreachable", 3: "port-unreachable", 9: "net-prohibited", 10: "host-prohibited", 13: "admin-prohibited"}
	reasonsX = map[byte]string{0: "no-route", 1: "port-unreachable", 2: "host-unreachable", 3: "admin-prohibited"}
)

func rejection(typ uint32, code nlmsg.Attributes) string {
	switch {
	case typ == unix.NFT_REJECT_TCP_RST:
		return "tcp reset"
	case len(code) != 1:
		return "icmp"
	case typ == unix.NFT_REJECT_ICMPX_UNREACH:
		return "icmpx " + reasonsX[code[0]]
	}
	return "icmp " + reasons[code[0]]
}
