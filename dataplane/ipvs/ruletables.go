package ipvs

import (
	"fmt"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
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
