package ahead

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// translation is the priority of the chains that translate, in every mode on netfilter. What
// has the same may come first.
const translation = -100

var families = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyNetdev: "netdev",
}

func readNFTables() (list []Rule, err error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	left := mostRules
	for _, c := range chains {
		if !isAhead(c) {
			continue
		}
		rules := func(chain string, come packets) (steps []step, err error) {
			all, err := conn.GetRules(c.Table, &nftables.Chain{Table: c.Table, Name: chain})
			if err != nil {
				return nil, fmt.Errorf("list rules of chain %s: %w", chain, err)
			}
			all = all[:min(len(all), left)]
			left -= len(all)
			for _, r := range all {
				s, err := readRule(conn, r, come)
				if err != nil {
					return nil, err
				}
				steps = append(steps, s)
			}
			return steps, nil
		}
		family := families[c.Table.Family]
		w := &walker{rules: rules, found: func(chain string, s step) {
			list = append(list, Rule{
				Where: fmt.Sprintf("table %s %s, chain %s", family, c.Table.Name, chain), Effect: s.effect, packets: s.packets,
			})
		}}
		if _, err := w.walk(c.Name, packets{ipv4: family != "ip6", ipv6: family != "ip"}); err != nil {
			return list, err
		}
	}
	return list, nil
}

// isAhead reports whether a base chain of somebody else's may see packets before they are
// translated.
func isAhead(c *nftables.Chain) bool {
	if c.Hooknum == nil || c.Priority == nil || strings.HasPrefix(c.Table.Name, "fairway") || c.Table.Name == "kube-proxy" {
		return false
	}
	switch c.Table.Family {
	case nftables.TableFamilyNetdev:
		return true
	case nftables.TableFamilyINet, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6:
		return (*c.Hooknum == *nftables.ChainHookPrerouting || *c.Hooknum == *nftables.ChainHookOutput) && *c.Priority <= translation
	}
	return false
}

// field is what a register holds.
type field uint8

const (
	otherField field = iota
	protoField
	portField
	toField
	familyField
)

// ruleReader goes through the expressions of a rule.
type ruleReader struct {
	step
	fields map[uint32]field
	masks  map[uint32][]byte
}

// readRule understands a rule, of packets that come to it.
func readRule(conn *nftables.Conn, rule *nftables.Rule, come packets) (step, error) {
	r := &ruleReader{step: step{packets: come}, fields: map[uint32]field{}, masks: map[uint32][]byte{}}
	for _, e := range rule.Exprs {
		if x, ok := e.(*expr.Lookup); ok && r.fields[x.SourceRegister] == portField && !x.Invert {
			elements, err := conn.GetSetElements(&nftables.Set{Table: rule.Table, Name: x.SetName})
			if err != nil {
				return r.step, fmt.Errorf("list elements of set %s: %w", x.SetName, err)
			}
			r.ports = portsOf(elements)
			continue
		}
		if !r.matches(e) {
			r.acts(e)
		}
	}
	return r.step, nil
}

// matches takes in what limits the rule to some packets, and reports whether that was it.
func (r *ruleReader) matches(e expr.Any) bool {
	switch x := e.(type) {
	case *expr.Meta:
		r.fields[x.Register] = map[expr.MetaKey]field{expr.MetaKeyL4PROTO: protoField, expr.MetaKeyNFPROTO: familyField, expr.MetaKeyPROTOCOL: familyField}[x.Key]
	case *expr.Payload:
		r.fields[x.DestRegister] = fieldOf(x)
	case *expr.Bitwise:
		r.fields[x.DestRegister], r.masks[x.DestRegister] = r.fields[x.SourceRegister], x.Mask
	case *expr.Cmp:
		r.compare(r.fields[x.Register], x, r.masks[x.Register])
	case *expr.Range:
		if r.fields[x.Register] == portField && x.Op == expr.CmpOpEq && len(x.FromData) == 2 && len(x.ToData) == 2 {
			r.ports = [][2]uint16{{binary.BigEndian.Uint16(x.FromData), binary.BigEndian.Uint16(x.ToData)}}
		} else {
			r.more = true
		}
	case *expr.Match:
		r.match(x)
	case *expr.Counter, *expr.Log:
	case *expr.Verdict, *expr.Reject, *expr.NAT, *expr.Redir, *expr.TProxy, *expr.Notrack, *expr.Target, *expr.Immediate:
		return false
	default:
		r.more = true
	}
	return true
}

// acts takes in what the rule does.
func (r *ruleReader) acts(e expr.Any) {
	switch x := e.(type) {
	case *expr.Verdict:
		switch x.Kind {
		case expr.VerdictDrop:
			r.effect = Drops
		case expr.VerdictJump, expr.VerdictGoto:
			r.jump = x.Chain
		case expr.VerdictAccept:
			r.effect = Ends
		case expr.VerdictReturn:
			r.effect = returns
		}
	case *expr.Reject:
		r.effect = Drops
	case *expr.NAT:
		if x.Type == expr.NATTypeDestNAT {
			r.effect = Translates
		}
	case *expr.Redir, *expr.TProxy:
		r.effect = Translates
	case *expr.Notrack:
		r.effect = Untracks
	case *expr.Target:
		r.effect = targets[x.Name]
	}
}

// fieldOf is what is read of a packet.
func fieldOf(x *expr.Payload) field {
	switch {
	case x.Base == expr.PayloadBaseTransportHeader && x.Offset == 2 && x.Len == 2:
		return portField
	case x.Base == expr.PayloadBaseNetworkHeader && (x.Offset == 16 && x.Len <= 4 || x.Offset == 24 && x.Len <= 16):
		return toField
	case x.Base == expr.PayloadBaseNetworkHeader && (x.Offset == 9 || x.Offset == 6) && x.Len == 1:
		return protoField
	}
	return otherField
}

func (r *ruleReader) compare(f field, x *expr.Cmp, mask []byte) {
	port := uint16(0)
	if f == portField && len(x.Data) == 2 {
		port = binary.BigEndian.Uint16(x.Data)
	}
	switch {
	case f == familyField && x.Op == expr.CmpOpEq:
		is4 := slices.Equal(x.Data, []byte{unix.NFPROTO_IPV4}) || slices.Equal(x.Data, []byte{8, 0})
		r.ipv4, r.ipv6 = r.ipv4 && is4, r.ipv6 && !is4
	case f == protoField && x.Op == expr.CmpOpEq && len(x.Data) == 1:
		r.proto = x.Data[0]
	case port != 0 && x.Op == expr.CmpOpEq:
		r.ports = [][2]uint16{{port, port}}
	case port != 0 && x.Op == expr.CmpOpGte:
		r.ports = [][2]uint16{{port, 65535}}
	case port != 0 && x.Op == expr.CmpOpLte && len(r.ports) == 1:
		r.ports = [][2]uint16{{r.ports[0][0], port}}
	case f == toField && x.Op == expr.CmpOpEq:
		r.to = prefixOf(x.Data, mask)
	default:
		r.more = true
	}
}

// prefixOf is the range that an address is compared with: by a mask, or by its first bytes.
func prefixOf(data, mask []byte) netip.Prefix {
	size := 4
	if len(data) > 4 {
		size = 16
	}
	bits := 8 * len(data)
	if mask != nil {
		bits = 0
		for _, b := range mask {
			for ; b&0x80 != 0; b <<= 1 {
				bits++
			}
		}
	}
	a, ok := netip.AddrFromSlice(append(slices.Clone(data), make([]byte, max(0, size-len(data)))...))
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, bits)
}

// portsOf are those of a set, whose ranges are in pairs of elements: the first port, and the
// first one behind.
func portsOf(elements []nftables.SetElement) (list [][2]uint16) {
	list = [][2]uint16{}
	elements = slices.DeleteFunc(slices.Clone(elements), func(e nftables.SetElement) bool { return len(e.Key) != 2 })
	slices.SortStableFunc(elements, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	for _, e := range elements {
		port := binary.BigEndian.Uint16(e.Key)
		if !e.IntervalEnd {
			list = append(list, [2]uint16{port, port})
		} else if n := len(list); n > 0 {
			list[n-1][1] = port - 1
		}
	}
	return list
}

// match takes in a match of iptables.
func (r *ruleReader) match(x *expr.Match) {
	ports := func(proto uint8, to, from [2]uint16, more bool) {
		if r.proto = proto; to != [2]uint16{0, 65535} {
			r.ports = [][2]uint16{to}
		}
		r.more = r.more || more || from != [2]uint16{0, 65535}
	}
	switch info := x.Info.(type) {
	case *xt.Tcp:
		ports(unix.IPPROTO_TCP, info.DstPorts, info.SrcPorts, info.InvFlags != 0 || info.FlagsMask != 0)
	case *xt.Udp:
		ports(unix.IPPROTO_UDP, info.DstPorts, info.SrcPorts, info.InvFlags != 0)
	case *xt.Comment:
	case *xt.Unknown:
		if list := multiport(*info); x.Name == "multiport" && list != nil {
			r.ports = list
		} else {
			r.more = true
		}
	default:
		r.more = true
	}
}

// multiport reads the ports of iptables' match of that name (struct xt_multiport_v1,
// linux/netfilter/xt_multiport.h); nil if it isn't about ports that packets go to.
func multiport(info []byte) (list [][2]uint16) {
	const most, toPort = 15, 1
	const begins, inverted = 2 + 2*most, 2 + 3*most // where flags are
	if len(info) <= inverted || info[0] != toPort || info[inverted] != 0 {
		return nil
	}
	for i := range min(int(info[1]), most) {
		port := binary.NativeEndian.Uint16(info[2+2*i:])
		if i > 0 && info[begins+i-1] != 0 { // the end of a range
			list[len(list)-1][1] = port
		} else {
			list = append(list, [2]uint16{port, port})
		}
	}
	return list
}
