package ipvs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// Chains. Most are kube-proxy's; the mangle table and the refusals are ours.
const (
	chainServices     = "KUBE-SERVICES"
	chainPostrouting  = "KUBE-POSTROUTING"
	chainMarkMasq     = "KUBE-MARK-MASQ"
	chainNodePort     = "KUBE-NODE-PORT"
	chainLoadBalancer = "KUBE-LOAD-BALANCER"
	chainExternalIP   = "KUBE-EXTERNAL-IP"
	chainForward      = "KUBE-FORWARD"
	chainFirewall     = "KUBE-PROXY-FIREWALL"
	chainSources      = "KUBE-SOURCE-RANGES-FIREWALL"
	chainFilter       = "KUBE-IPVS-FILTER"
	chainOutFilter    = "KUBE-IPVS-OUT-FILTER"
	chainReject       = "KUBE-IPVS-REJECT"
	chainInput        = "KUBE-IPVS-INPUT"
	chainOutput       = "KUBE-IPVS-OUTPUT"
	chainFromPod      = "KUBE-FROM-POD"
	chainTurnAway     = "KUBE-IPVS-TURN-AWAY"
)

// refusedPort is where this node's own packets are turned to that are to be
// refused: tcpmux, which no Service serves.
const refusedPort = 1

// ruleTable is what the plane has in one iptables table.
type ruleTable struct {
	name   string
	jumps  []jump
	chains []iptables.Chain
}

// jump is a rule of one of the kernel's chains.
type jump struct{ from, rule string }

func jumpTo(from, comment, chain string) jump { return jumpIf(from, "", comment, chain) }

// jumpIf is for packets that match, in the words of iptables-save. Most packets are of
// connections that are there: for them, what a chain would do about first ones ends
// with the jump that isn't made (BenchmarkPath).
func jumpIf(from, match, comment, chain string) jump {
	return jump{from, strings.TrimPrefix(fmt.Sprintf("%s -m comment --comment %q -j %s", match, comment, chain), " ")}
}

// foreignChains are those that kube-proxy's ipvs mode has and the plane has not, and
// those that freeze packets.
var foreignChains = map[string][]string{
	"filter": {"KUBE-NODE-PORT", "KUBE-PROXY-CANARY"},
	"nat":    {"KUBE-FIREWALL", "KUBE-PROXY-CANARY"},
	"mangle": append([]string{"KUBE-PROXY-CANARY"}, freezeChains...),
}

// ruleSet spells rules for one family.
type ruleSet struct {
	family     iptables.Family
	settings   *model.Settings
	masquerade uint32
}

// tables are all rules, in the words of iptables-save. Their number depends on
// the settings only.
func (r ruleSet) tables() []ruleTable { return []ruleTable{r.mangle(), r.nat(), r.filter()} }

// early are the rules without those that refuse.
func (r ruleSet) early() []ruleTable {
	filter := r.filter()
	late := func(chain string) bool { return chain != chainFirewall && chain != chainSources }
	filter.chains = slices.DeleteFunc(filter.chains, func(c iptables.Chain) bool { return late(c.Name) })
	filter.jumps = slices.DeleteFunc(filter.jumps, func(j jump) bool { return late(target(j.rule)) })
	return []ruleTable{r.mangle(), r.nat(), filter}
}

// setComments say in rules what a set is there for, as kube-proxy's do.
var setComments = map[setKind]string{
	setLoopBack:          "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
	setNodePortTCP:       "Kubernetes nodeport TCP port for masquerade purpose",
	setNodePortLocalTCP:  "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
	setNodePortUDP:       "Kubernetes nodeport UDP port for masquerade purpose",
	setNodePortLocalUDP:  "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
	setNodePortSCTP:      "Kubernetes nodeport SCTP port for masquerade purpose",
	setNodePortLocalSCTP: "Kubernetes nodeport SCTP port with externalTrafficPolicy=local",
}

// in matches by set, as in in(setClusterIP, "dst,dst").
func (r ruleSet) in(kind setKind, fields string) string {
	match := "-m set --match-set " + r.set(kind) + " " + fields
	if comment := setComments[kind]; comment != "" {
		return fmt.Sprintf("-m comment --comment %q ", comment) + match
	}
	return match
}

func (r ruleSet) set(kind setKind) string { return setID{kind, r.family == iptables.IPv6}.name() }

// markFrom puts the mark on the packet that the set of an origin has for it.
func (r ruleSet) markFrom(o model.Origin) string {
	return "-j SET --map-set " + r.set(originSet(o)) + " dst,dst --map-mark"
}

func marked(value uint32) string { return fmt.Sprintf("-m mark --mark %#x", value) }

const (
	newOnly = "-m conntrack --ctstate NEW"
	notNew  = "-m conntrack ! --ctstate NEW -j RETURN"
)

// mangle puts the marks of the origins' sets on first packets: in INPUT and
// OUTPUT, before the filter table and before IPVS. The whole mark is compared
// by IPVS, so it comes off again when the packet goes on to its backend.
func (r ruleSet) mangle() ruleTable {
	var input []string
	for _, match := range r.pods() {
		input = append(input, match+"-g "+chainFromPod)
	}
	return ruleTable{
		name: "mangle",
		jumps: []jump{
			jumpIf("INPUT", "! -i lo "+newOnly, "kubernetes service portals by origin", chainInput),
			jumpIf("OUTPUT", newOnly, "kubernetes service portals by origin", chainOutput),
		},
		chains: []iptables.Chain{
			{Name: chainInput, Rules: append(input, r.markFrom(model.FromOutside))},
			{Name: chainFromPod, Rules: []string{r.markFrom(model.FromPod)}},
			{Name: chainOutput, Rules: []string{
				fmt.Sprintf("-m mark --mark %#x/%#x -j MARK --set-xmark 0x0/%#x", markRange, markRangeMask, ^r.masquerade),
				r.in(setFirewall, "dst,dst") + " -j " + chainSources,
				r.markFrom(model.FromNode),
				marked(markDrop) + " -j DROP",
			}},
			{Name: chainSources, Rules: r.sources()},
		},
	}
}

// pods match packets of pods: the beginnings of rules.
func (r ruleSet) pods() []string {
	var list []string
	for _, p := range r.settings.Pods.Prefixes {
		switch {
		case p.Addr().Is6() != (r.family == iptables.IPv6):
		case p.Bits() == 0:
			list = append(list, "")
		default:
			list = append(list, "-s "+p.Masked().String()+" ")
		}
	}
	for _, name := range r.settings.Pods.Interfaces {
		if prefix, wild := strings.CutSuffix(name, "*"); wild {
			name = prefix + "+"
		}
		if name == "+" {
			list = append(list, "")
			continue
		}
		list = append(list, "-i "+name+" ")
	}
	return list
}

func (r ruleSet) sources() []string {
	return []string{r.in(setSourceCIDR, "dst,dst,src") + " -j RETURN", "-j DROP"}
}

func (r ruleSet) nat() ruleTable {
	var turnAway []string
	for _, proto := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		turnAway = append(turnAway, fmt.Sprintf("-p %s -j DNAT --to-destination :%d", proto, refusedPort))
	}
	services := []string{
		r.in(setAddresses, "src") + " -j " + chainMarkMasq,
		r.in(setClusterIP, "dst,dst") + " -j ACCEPT",
		r.in(setLoadBalancer, "dst,dst") + " -j " + chainLoadBalancer,
		r.in(setExternalIP, "dst,dst") + " -j " + chainExternalIP,
		r.in(setLoadBalancer, "dst,dst") + " -j ACCEPT",
		r.in(setExternalIP, "dst,dst") + " -j ACCEPT",
		"-m addrtype --dst-type LOCAL -j " + chainNodePort,
	}
	masquerade := fmt.Sprintf("%#x/%#x", r.masquerade, r.masquerade)
	return ruleTable{
		name: "nat",
		jumps: []jump{
			jumpTo("PREROUTING", "kubernetes service portals", chainServices),
			jumpIf("OUTPUT", marked(markRefuse), "kubernetes service portals that refuse", chainTurnAway),
			jumpTo("OUTPUT", "kubernetes service portals", chainServices),
			jumpTo("POSTROUTING", "kubernetes postrouting rules", chainPostrouting),
		},
		chains: []iptables.Chain{
			{Name: chainTurnAway, Rules: turnAway},
			{Name: chainServices, Rules: services},
			{Name: chainLoadBalancer, Rules: []string{r.in(setLoadBalancerLocal, "dst,dst") + " -j RETURN", "-j " + chainMarkMasq}},
			{Name: chainExternalIP, Rules: []string{r.in(setExternalIPLocal, "dst,dst") + " -j RETURN", "-j " + chainMarkMasq}},
			{Name: chainNodePort, Rules: []string{
				"-p tcp " + r.in(setNodePortLocalTCP, "dst") + " -j RETURN",
				"-p tcp " + r.in(setNodePortTCP, "dst") + " -j " + chainMarkMasq,
				"-p udp " + r.in(setNodePortLocalUDP, "dst") + " -j RETURN",
				"-p udp " + r.in(setNodePortUDP, "dst") + " -j " + chainMarkMasq,
				"-p sctp " + r.in(setNodePortLocalSCTP, "dst,dst") + " -j RETURN",
				"-p sctp " + r.in(setNodePortSCTP, "dst,dst") + " -j " + chainMarkMasq,
			}},
			{Name: chainMarkMasq, Rules: []string{"-j MARK --set-xmark " + masquerade}},
			{Name: chainPostrouting, Rules: []string{
				r.in(setLoopBack, "dst,dst,src") + " -j MASQUERADE",
				"-m mark ! --mark " + masquerade + " -j RETURN",
				fmt.Sprintf("-j MARK --set-xmark %#x/0x0", r.masquerade),
				"-j MASQUERADE --random-fully",
			}},
		},
	}
}

// filter refuses and drops what IPVS must not see, keeps this node's own
// services from being reached through addresses of kube-ipvs0, and lets
// nothing out to addresses of Services that nothing serves. A port of an
// external address that no Service has should pass, but as the address is local
// here there is nowhere to pass it on to: it is dropped.
func (r ruleSet) filter() ruleTable {
	invalid := "-m conntrack --ctstate INVALID " + r.in(setLoopBack, "src,src,src") + " -j DROP"
	unserved := newOnly + " -m set ! --match-set " + r.set(setExempt) + " dst " + r.in(setReserved, "dst") + " -j " + chainReject
	unreachable := "icmp-port-unreachable"
	if r.family == iptables.IPv6 {
		unreachable = "icmp6-port-unreachable"
	}
	return ruleTable{
		name: "filter",
		jumps: []jump{
			jumpIf("INPUT", newOnly, "kubernetes load balancer firewall", chainFirewall),
			jumpIf("INPUT", "-m conntrack --ctstate INVALID,NEW", "kubernetes ipvs access filter", chainFilter),
			jumpIf("OUTPUT", newOnly, "kubernetes ipvs access filter", chainOutFilter),
			jumpTo("FORWARD", "kubernetes forwarding rules", chainForward),
		},
		chains: []iptables.Chain{
			{Name: chainFirewall, Rules: []string{r.in(setFirewall, "dst,dst") + " -j " + chainSources}},
			{Name: chainSources, Rules: r.sources()},
			{Name: chainFilter, Rules: []string{
				invalid,
				"-i lo -j RETURN",
				notNew,
				marked(markDrop) + " -j DROP",
				marked(markRefuse) + " -j " + chainReject,
				r.in(setClusterIP, "dst,dst") + " -j RETURN",
				r.in(setLoadBalancer, "dst,dst") + " -j RETURN",
				r.in(setExternalIP, "dst,dst") + " -j RETURN",
				r.in(setAddresses, "dst") + " " + r.in(setReserved, "dst") + " -j " + chainReject,
				r.in(setAddresses, "dst") + " -j DROP",
			}},
			{Name: chainOutFilter, Rules: []string{
				marked(markRefuse) + " -j " + chainReject,
				unserved,
				r.in(setAddresses, "dst") + " -j DROP",
			}},
			{Name: chainForward, Rules: []string{
				"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
				invalid,
				newOnly + " " + unserved,
				fmt.Sprintf("-m mark --mark %#x/%#x -j ACCEPT", r.masquerade, r.masquerade),
			}},
			{Name: chainReject, Rules: []string{
				"-p tcp -j REJECT --reject-with tcp-reset",
				"-j REJECT --reject-with " + unreachable,
			}},
		},
	}
}
