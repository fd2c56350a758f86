package iptables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// RuleText puts a rule of nf_tables, as its attributes, into the words of
// iptables-save; ok is false if it isn't one that this package understands.
func RuleText(f Family, a nlmsg.Attributes) (text string, ok bool) { return ruleText(f, a) }

// ruleText puts a rule of nf_tables into the words of iptables-save; ok is false
// if it holds anything that isn't understood here. Understood is what this
// project's own rules are made of, as iptables 1.8 compiles them.
func ruleText(f Family, a nlmsg.Attributes) (text string, ok bool) {
	if a.Get(unix.NFTA_RULE_USERDATA) != nil {
		return "", false
	}
	d := decoder{family: f}
	for _, e := range a.Get(unix.NFTA_RULE_EXPRESSIONS).All() {
		if d.decided || !d.expression(e.Get(unix.NFTA_EXPR_NAME).Word(), e.Get(unix.NFTA_EXPR_DATA)) {
			return "", false
		}
	}
	return d.text(), d.held.from == nowhere
}

// decoder collects what a rule's expressions say, in the parts of which
// iptables-save makes a line.
type decoder struct {
	family            Family
	src, dst, in      string
	protocol          string
	matches           strings.Builder
	target            string
	decided, hasPorts bool
	held              register
}

// register is what the one register holds that iptables uses at a time.
type register struct {
	from   place
	number uint32
	offset uint32 // the key of metadata
	mask   []byte // nil for all of it
}

// place is where the content of a register is from.
type place uint8

const (
	nowhere place = iota
	networkHeader
	transportHeader
	metadata
)

func (d *decoder) text() string {
	var words []string
	for _, part := range []string{d.src, d.dst, d.in, d.protocol, d.matches.String(), d.target} {
		if part != "" {
			words = append(words, strings.TrimPrefix(part, " "))
		}
	}
	return strings.Join(words, " ")
}

// expression reads one expression; false if it isn't understood.
func (d *decoder) expression(name []byte, a nlmsg.Attributes) bool {
	switch string(name) {
	case "counter":
		return true
	case "payload":
		return d.load(payloadPlace(a), a.Uint32(unix.NFTA_PAYLOAD_DREG), a.Uint32(unix.NFTA_PAYLOAD_OFFSET))
	case "meta":
		return d.load(metadata, a.Uint32(unix.NFTA_META_DREG), a.Uint32(unix.NFTA_META_KEY))
	case "bitwise":
		return d.maskOut(a)
	case "cmp":
		op, value := a.Uint32(unix.NFTA_CMP_OP), a.Get(unix.NFTA_CMP_DATA).Get(unix.NFTA_DATA_VALUE)
		return d.holds(a.Uint32(unix.NFTA_CMP_SREG)) && op <= unix.NFT_CMP_NEQ && d.compare(op == unix.NFT_CMP_NEQ, value)
	case "range":
		return d.holds(a.Uint32(unix.NFTA_RANGE_SREG)) && d.portRange(a)
	}
	if d.held.from != nowhere {
		return false
	}
	switch string(name) {
	case "match":
		words, ok := matchText(d.family, string(a.Get(unix.NFTA_MATCH_NAME).Word()), a.Uint32(unix.NFTA_MATCH_REV), a.Get(unix.NFTA_MATCH_INFO))
		d.matches.WriteString(words)
		return ok
	case "target":
		words, ok := targetText(d.family, string(a.Get(unix.NFTA_TARGET_NAME).Word()), a.Uint32(unix.NFTA_TARGET_REV), a.Get(unix.NFTA_TARGET_INFO))
		d.target, d.decided = "-j "+words, true
		return ok
	case "immediate":
		return d.verdict(a.Get(unix.NFTA_IMMEDIATE_DATA).Get(unix.NFTA_DATA_VERDICT))
	}
	return false
}

func payloadPlace(a nlmsg.Attributes) place {
	switch a.Uint32(unix.NFTA_PAYLOAD_BASE) {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		return networkHeader
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		return transportHeader
	}
	return nowhere
}

// load notes what is in the register from now on, until it is compared.
func (d *decoder) load(from place, number, offset uint32) bool {
	if d.held.from != nowhere || number == 0 { // 0: it is written, not read
		return false
	}
	d.held = register{from: from, number: number, offset: offset}
	return from != nowhere
}

func (d *decoder) holds(number uint32) bool {
	return d.held.from != nowhere && d.held.number == number
}

// bitwiseOp is which operation a bitwise expression does (NFTA_BITWISE_OP,
// linux/netfilter/nf_tables.h): 0 for a mask, all that iptables uses it for.
const bitwiseOp = 6

func (d *decoder) maskOut(a nlmsg.Attributes) bool {
	xor := a.Get(unix.NFTA_BITWISE_XOR).Get(unix.NFTA_DATA_VALUE)
	d.held.mask = a.Get(unix.NFTA_BITWISE_MASK).Get(unix.NFTA_DATA_VALUE)
	return d.holds(a.Uint32(unix.NFTA_BITWISE_SREG)) && a.Uint32(unix.NFTA_BITWISE_DREG) == d.held.number &&
		a.Uint32(bitwiseOp) == 0 && len(d.held.mask) > 0 && bytes.Count(xor, []byte{0}) == len(xor)
}

// compare reads a comparison with what is held.
func (d *decoder) compare(negated bool, value []byte) bool {
	h := d.held
	d.held = register{}
	switch {
	case h.from == networkHeader:
		return d.address(h, negated, value)
	case h.from == transportHeader && len(value) == 2 && h.mask == nil:
		port := binary.BigEndian.Uint16(value)
		return d.ports(h, negated, port, port)
	case h.from == metadata && h.offset == unix.NFT_META_L4PROTO && len(value) == 1 && h.mask == nil:
		name := protocolName(value[0])
		d.protocol = option(negated, "-p", name)
		return name != ""
	case h.from == metadata && h.offset == unix.NFT_META_IIFNAME && len(value) > 1 && h.mask == nil:
		name, exact := bytes.CutSuffix(value, []byte{0})
		if !exact {
			name = append(slices.Clone(name), '+')
		}
		d.in = option(negated, "-i", unix.ByteSliceToString(name))
		return true
	case h.from == metadata && h.offset == unix.NFT_META_MARK && len(value) == 4:
		text := fmt.Sprintf("%#x", binary.NativeEndian.Uint32(value))
		if len(h.mask) == 4 {
			text += fmt.Sprintf("/%#x", binary.NativeEndian.Uint32(h.mask))
		}
		d.matches.WriteString(" -m mark " + option(negated, "--mark", text))
		return true
	}
	return false
}

// option writes one as iptables-save does.
func option(negated bool, name, value string) string {
	if negated {
		return "! " + name + " " + value
	}
	return name + " " + value
}

func protocolName(number byte) string {
	return map[byte]string{
		unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "ipv6-icmp",
	}[number]
}

// address reads a comparison of the packet's source or destination. Where the
// prefix ends with a byte, only that many bytes are compared, without a mask.
func (d *decoder) address(h register, negated bool, value []byte) bool {
	size, source := 4, uint32(12) // struct iphdr, linux/ip.h
	if d.family == IPv6 {
		size, source = 16, 8 // struct ipv6hdr, linux/ipv6.h
	}
	if len(value) > size || h.mask != nil && len(h.mask) != len(value) {
		return false
	}
	length := 8 * len(value)
	if h.mask != nil {
		length = leadingOnes(h.mask)
	}
	addr, _ := netip.AddrFromSlice(append(slices.Clone(value), make([]byte, size-len(value))...))
	prefix := netip.PrefixFrom(addr, length).String()
	switch {
	case length < 0:
		return false
	case h.offset == source && d.src == "":
		d.src = option(negated, "-s", prefix)
	case h.offset == source+uint32(size) && d.dst == "":
		d.dst = option(negated, "-d", prefix)
	default:
		return false
	}
	return true
}

// leadingOnes counts a mask's ones; -1 if they aren't all at its beginning.
func leadingOnes(mask []byte) int {
	ones := 0
	for i, b := range mask {
		n := bits.LeadingZeros8(^b)
		if b != ^byte(0)<<(8-n) || n > 0 && ones < 8*i {
			return -1
		}
		ones += n
	}
	return ones
}

func (d *decoder) portRange(a nlmsg.Attributes) bool {
	h := d.held
	d.held = register{}
	op := a.Uint32(unix.NFTA_RANGE_OP)
	from, to := a.Get(unix.NFTA_RANGE_FROM_DATA).Get(unix.NFTA_DATA_VALUE), a.Get(unix.NFTA_RANGE_TO_DATA).Get(unix.NFTA_DATA_VALUE)
	return h.from == transportHeader && h.mask == nil && op <= unix.NFT_RANGE_NEQ && len(from) == 2 && len(to) == 2 &&
		d.ports(h, op == unix.NFT_RANGE_NEQ, binary.BigEndian.Uint16(from), binary.BigEndian.Uint16(to))
}

// destinationPort is where it is in the headers of TCP, UDP and SCTP.
const destinationPort = 2

// ports reads a comparison of destination ports, which iptables before 1.8.9
// left to the match of the protocol.
func (d *decoder) ports(h register, negated bool, from, to uint16) bool {
	protocol, found := strings.CutPrefix(d.protocol, "-p ")
	if !found || !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) || h.offset != destinationPort || d.hasPorts {
		return false
	}
	d.hasPorts = true
	d.matches.WriteString(" -m " + protocol + " " + option(negated, "--dport", portText(from, to)))
	return true
}

func portText(from, to uint16) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d:%d", from, to)
}

// verdict reads where a rule leads without a target.
func (d *decoder) verdict(a nlmsg.Attributes) bool {
	d.decided = true
	chain := string(a.Get(unix.NFTA_VERDICT_CHAIN).Word())
	switch int32(a.Uint32(unix.NFTA_VERDICT_CODE)) {
	case unix.NFT_JUMP:
		d.target = "-j " + chain
	case unix.NFT_GOTO:
		d.target = "-g " + chain
	case unix.NFT_RETURN:
		d.target = "-j RETURN"
	case netfilterAccept:
		d.target = "-j ACCEPT"
	case netfilterDrop:
		d.target = "-j DROP"
	default:
		return false
	}
	return true
}

// The verdicts of netfilter (NF_DROP, NF_ACCEPT, linux/netfilter.h).
const (
	netfilterDrop   = 0
	netfilterAccept = 1
)
