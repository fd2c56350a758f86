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
