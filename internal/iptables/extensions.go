package iptables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The matches and targets of iptables that stay what they are in nf_tables
// (net/netfilter/nft_compat.c). Their data are the C structs of linux/netfilter,
// padded to eight bytes.

// matchText puts a match into words, with a space before.
func matchText(f Family, name string, revision uint32, info []byte) (words string, ok bool) {
	switch fmt.Sprint(name, " ", revision, " ", len(info)) {
	case "comment 0 256": // struct xt_comment_info
		text := unix.ByteSliceToString(info)
		return " -m comment --comment " + saved(text), !strings.ContainsAny(text, `"\'`)
	case "tcp 0 16": // struct xt_tcp; 4: behind it come options and flags
		return portMatch(name, info, info[8:12])
	case "udp 0 16": // struct xt_udp
		return portMatch(name, info, append([]byte{0, 0, 0}, info[8]))
	case "addrtype 1 8":
		return addrTypeText(info)
	case "statistic 0 24":
		return statisticText(info)
	case "recent 1 232":
		return recentText(f, info)
	case "conntrack 3 168":
		return conntrackText(info)
	}
	return "", false
}

// saved writes a string as iptables-save does: in quotes unless it is a word.
func saved(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return text
	}
	return `"` + text + `"`
}

// portMatch reads the ports that TCP's and UDP's matches have in common. rest
// are a TCP option, the flags looked at and wanted, and what is inverted.
func portMatch(name string, info, rest []byte) (words string, ok bool) {
	const invertDestination = 2 // XT_TCP_INV_DSTPT, XT_UDP_INV_DSTPT
	var ports [4]uint16
	for i := range ports {
		ports[i] = binary.NativeEndian.Uint16(info[2*i:])
	}
	if ports[0] != 0 || ports[1] != 0xffff || rest[0] != 0 || rest[1] != 0 || rest[2] != 0 || rest[3]&^invertDestination != 0 {
		return "", false
	}
	words = " -m " + name
	if negated := rest[3] != 0; negated || ports[2] != 0 || ports[3] != 0xffff {
		words += " " + option(negated, "--dport", portText(ports[2], ports[3]))
	}
	return words, true
}

// addrTypeText reads struct xt_addrtype_info_v1.
func addrTypeText(info []byte) (words string, ok bool) {
	const local = 1 << unix.RTN_LOCAL
	source, destination := binary.NativeEndian.Uint16(info), binary.NativeEndian.Uint16(info[2:])
	switch flags := binary.NativeEndian.Uint32(info[4:]); {
	case flags != 0:
	case source == local && destination == 0:
		return " -m addrtype --src-type LOCAL", true
	case source == 0 && destination == local:
		return " -m addrtype --dst-type LOCAL", true
	}
	return "", false
}

// statisticText reads struct xt_statistic_info.
func statisticText(info []byte) (words string, ok bool) {
	random, straight := binary.NativeEndian.Uint16(info) == 0, binary.NativeEndian.Uint16(info[2:]) == 0
	probability := float64(binary.NativeEndian.Uint32(info[4:])) / (1 << 31)
	return fmt.Sprintf(" -m statistic --mode random --probability %.11f", probability), random && straight
}

// recentText reads struct xt_recent_mtinfo_v1.
func recentText(f Family, info []byte) (words string, ok bool) {
	const check, set, reap = 1, 2, 32 // XT_RECENT_CHECK, XT_RECENT_SET, XT_RECENT_REAP
	seconds, hits := binary.NativeEndian.Uint32(info), binary.NativeEndian.Uint32(info[4:])
	name, side := unix.ByteSliceToString(info[10:210]), info[210]
	var does string
	switch info[8] {
	case set:
		does = "--set"
	case check | reap:
		does = fmt.Sprintf("--rcheck --seconds %d --reap", seconds)
	default:
		return "", false
	}
	mask := netip.AddrFrom16([16]byte(info[212:228]))
	if f == IPv4 {
		mask = netip.AddrFrom4([4]byte(info[212:216]))
	}
	return fmt.Sprintf(" -m recent %s --name %s --mask %s --rsource", does, name, mask),
		hits == 0 && info[9] == 0 && side == 0 && (seconds == 0) == (info[8] == set)
}

// conntrackText reads struct xt_conntrack_mtinfo3, as far as it is about states.
func conntrackText(info []byte) (words string, ok bool) {
	const aboutState = 1 // XT_CONNTRACK_STATE
	matches, inverted := binary.NativeEndian.Uint16(info[146:]), binary.NativeEndian.Uint16(info[148:])
	states := binary.NativeEndian.Uint16(info[150:])
	var names []string
	for _, s := range []struct { // in the order of iptables-save; XT_CONNTRACK_STATE_BIT
		bit  uint16
		name string
	}{{1, "INVALID"}, {8, "NEW"}, {4, "RELATED"}, {2, "ESTABLISHED"}} {
		if states&s.bit != 0 {
			names = append(names, s.name)
			states &^= s.bit
		}
	}
	return " -m conntrack " + option(inverted != 0, "--ctstate", strings.Join(names, ",")),
		matches == aboutState && inverted&^aboutState == 0 && states == 0 && len(names) > 0
}

// targetText puts a target into words.
func targetText(f Family, name string, revision uint32, info []byte) (words string, ok bool) {
	switch fmt.Sprint(f, " ", name, " ", revision, " ", len(info)) {
	case "IPv4 MARK 2 8", "IPv6 MARK 2 8": // struct xt_mark_tginfo2
		return fmt.Sprintf("MARK --set-xmark %#x/%#x", binary.NativeEndian.Uint32(info), binary.NativeEndian.Uint32(info[4:])), true
	case "IPv4 REJECT 0 8": // struct ipt_reject_info
		return rejectText(info, map[uint32]string{3: "icmp-port-unreachable", 7: "tcp-reset"})
	case "IPv6 REJECT 0 8": // struct ip6t_reject_info
		return rejectText(info, map[uint32]string{4: "icmp6-port-unreachable", 6: "tcp-reset"})
	case "IPv4 SNAT 0 24", "IPv4 MASQUERADE 0 24": // struct nf_nat_ipv4_multi_range_compat
		r := natRange{flags: binary.NativeEndian.Uint32(info[4:]), min: netip.AddrFrom4([4]byte(info[8:12])), max: netip.AddrFrom4([4]byte(info[12:16]))}
		words, ok = r.text(name)
		return words, ok && binary.NativeEndian.Uint32(info) == 1
	case "IPv6 SNAT 1 40", "IPv6 MASQUERADE 0 40", // struct nf_nat_range
		"IPv4 SNAT 2 48", "IPv6 SNAT 2 48", "IPv4 DNAT 2 48", "IPv6 DNAT 2 48": // struct nf_nat_range2
		r := natRange{flags: binary.NativeEndian.Uint32(info), min: netip.AddrFrom16([16]byte(info[4:20])), max: netip.AddrFrom16([16]byte(info[20:36]))}
		if f == IPv4 {
			r.min, r.max = netip.AddrFrom4([4]byte(info[4:8])), netip.AddrFrom4([4]byte(info[20:24]))
		}
		r.port, r.maxPort = binary.BigEndian.Uint16(info[36:]), binary.BigEndian.Uint16(info[38:])
		return r.text(name)
	}
	return "", false
}

func rejectText(info []byte, with map[uint32]string) (words string, ok bool) {
	words, ok = with[binary.NativeEndian.Uint32(info)]
	return "REJECT --reject-with " + words, ok
}

// natRange is what sources or destinations become.
type natRange struct {
	flags         uint32
	min, max      netip.Addr
	port, maxPort uint16
}

// text writes the target; ok is false if the range has more than one address or
// port.
func (r natRange) text(target string) (words string, ok bool) {
	const addresses, ports, random = 1, 2, 16 // NF_NAT_RANGE_MAP_IPS, _PROTO_SPECIFIED, _PROTO_RANDOM_FULLY
	words = target
	option := map[string]string{"SNAT": " --to-source ", "DNAT": " --to-destination "}[target]
	switch to := r.flags &^ random; {
	case to == 0 && target == "MASQUERADE":
	case to == addresses && option != "":
		words += option + r.min.String()
	case to == addresses|ports && option != "":
		words += option + netip.AddrPortFrom(r.min, r.port).String()
	case to == ports && option != "":
		words += fmt.Sprintf("%s:%d", option, r.port)
	default:
		return "", false
	}
	if r.flags&random != 0 {
		words += " --random-fully"
	}
	return words, r.min == r.max && r.port == r.maxPort && slices.Contains([]string{"SNAT", "DNAT", "MASQUERADE"}, target)
}
