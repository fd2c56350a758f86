package nftables

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

// family is what differs between rules for IPv4 and for IPv6.
type family struct {
	*familySets
	suffix   string
	ip       string // as nft calls the header
	nfproto  byte
	addrType fieldType
	saddr    value
	daddr    value
	ctDaddr  value
}

var families = []*family{
	newFamily(v4, "4", "ip", "ipv4", unix.NFPROTO_IPV4, ipv4, 12, 16, unix.NFT_CT_DST_IP),
	newFamily(v6, "6", "ip6", "ipv6", unix.NFPROTO_IPV6, ipv6, 8, 24, unix.NFT_CT_DST_IP6),
}

func newFamily(s *familySets, suffix, ip, name string, nfproto byte, addr fieldType, src, dst, ctKey uint32) *family {
	size := uint32(addr.size)
	return &family{familySets: s, suffix: suffix, ip: ip, nfproto: nfproto, addrType: addr,
		saddr:   payload(ip+" saddr", expr.PayloadBaseNetworkHeader, src, size),
		daddr:   payload(ip+" daddr", expr.PayloadBaseNetworkHeader, dst, size),
		ctDaddr: ctOriginal(ip+" daddr", ctKey, int(size)/4),
	}
}

// only restricts a rule to the family.
func (f *family) only() part {
	name := "ipv4"
	if f.nfproto == unix.NFPROTO_IPV6 {
		name = "ipv6"
	}
	return compare(metaValue("meta nfproto", expr.MetaKeyNFPROTO), expr.CmpOpEq, string([]byte{f.nfproto}), name)
}

// protocols are those that Services speak, the most frequent one first.
var protocols = []model.Protocol{model.TCP, model.UDP, model.SCTP}

func onlyProtocol(p model.Protocol) part {
	return compare(l4proto, expr.CmpOpEq, string([]byte{byte(p)}), p.String())
}

var (
	l4proto  = metaValue("meta l4proto", expr.MetaKeyL4PROTO)
	priority = metaValue("meta priority", expr.MetaKeyPRIORITY)
	sport    = payload("th sport", expr.PayloadBaseTransportHeader, 0, 2)
	dport    = payload("th dport", expr.PayloadBaseTransportHeader, 2, 2)
	ctDport  = ctOriginal("proto-dst", unix.NFT_CT_PROTO_DST, 1)
	iifname  = metaValue("iifname", expr.MetaKeyIIFNAME)
	oifname  = metaValue("oifname", expr.MetaKeyOIFNAME)
	// fibSource is the type of the source by the routes: whether it is an address of the node.
	fibSource = value{"fib saddr type", 1, func(word int) []nlmsg.Builder {
		return expressions(&expr.Fib{Register: register(word), ResultADDRTYPE: true, FlagSADDR: true})
	}}

	// fromThisNode is true for packets that came in through no interface.
	fromThisNode = compare(metaValue("iif", expr.MetaKeyIIF), expr.CmpOpEq, native(0), "0")
	// sentHere is for packets on their way out. Some that came in have no interface there,
	// too: those from port to port of a bridge (br_netfilter).
	sentHere     = all(fromThisNode, compare(fibSource, expr.CmpOpEq, native(unix.RTN_LOCAL), "local"))
	fromPodIface = in(iifname, podInterfaces)
	// bridgedForPods is for what sentHere leaves of those: a packet from port to port goes
	// out to the bridge that it came to.
	bridgedForPods = all(fromThisNode, in(oifname, podInterfaces))
	notFromLo      = compare(iifname, expr.CmpOpNeq, padName("lo"), `!= "lo"`)
	notToLo        = compare(oifname, expr.CmpOpNeq, padName("lo"), `!= "lo"`)

	invalidState = ctBit("ct state", expr.CtKeySTATE, expr.CtStateBitINVALID, "invalid")
	translated   = ctBit("ct status", expr.CtKeySTATUS, 1<<5, "dnat") // IPS_DST_NAT

	noPriority = setPriority(value{"none", 1, func(word int) []nlmsg.Builder {
		return expressions(&expr.Immediate{Register: register(word), Data: []byte(native(0))})
	}})
	plainPool     = setPriority(masked(priority, maxPool))
	isMasqueraded = flagged(masqueradeFlag)
	isRestricted  = flagged(restrictedFlag)

	counted     = part{"counter", expressions(&expr.Counter{})}
	drop        = part{"drop", expressions(&expr.Verdict{Kind: expr.VerdictDrop})}
	back        = part{"return", expressions(&expr.Verdict{Kind: expr.VerdictReturn})}
	resetTCP    = part{"reject with tcp reset", expressions(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})}
	unreachable = part{"reject with icmpx type port-unreachable",
		expressions(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})}
	// masquerade chooses the source port at random, so that two connections
	// which begin at once don't choose the same one and lose a packet.
	masquerade = part{"masquerade fully-random", expressions(&expr.Masq{FullyRandom: true})}
)

// Flags that are added to a pool's number in the maps of frontends.
const (
	masqueradeFlag uint32 = 1 << 31 // packets of this route are masqueraded
	restrictedFlag uint32 = 1 << 30 // the frontend is open to some sources only
)

// flagged is true if a flag is beside the pool's number.
func flagged(flag uint32) part {
	return compare(masked(priority, flag), expr.CmpOpEq, native(flag), fmt.Sprintf("== 0x%x", flag))
}

func padName(name string) string {
	b := make([]byte, ifname.size)
	copy(b, name)
	return string(b)
}

func ctBit(text string, key expr.CtKey, bit uint32, name string) part {
	exprs := expressions(
		&expr.Ct{Register: register(0), Key: key},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4,
			Mask: []byte(native(bit)), Xor: []byte(native(0))},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: []byte(native(0))})
	return part{text + " " + name, exprs}
}

// destination is a packet's frontend key, original that of its connection.
func (f *family) destination() value { return concat(f.daddr, l4proto, dport) }
func (f *family) original() value    { return concat(f.ctDaddr, l4proto, ctDport) }

// loopback matches 127.0.0.0/8 in the first byte of an address.
func loopback(name string, offset uint32) part {
	return compare(payload("ip "+name, expr.PayloadBaseNetworkHeader, offset, 1), expr.CmpOpEq, "\x7f", "127.0.0.0/8")
}
