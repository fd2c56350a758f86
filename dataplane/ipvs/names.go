package ipvs

import (
	"strings"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/model"
)

// Interface is the dummy interface that holds the addresses of Services.
const Interface = "kube-ipvs0"

// setKind is one of the plane's ipsets, in both families.
type setKind uint8

// The ipsets. Those above setFromPod are kube-proxy's.
const (
	setClusterIP setKind = iota
	setLoopBack
	setExternalIP
	setExternalIPLocal
	setLoadBalancer
	setLoadBalancerLocal
	setFirewall
	setSourceCIDR
	setNodePortTCP
	setNodePortLocalTCP
	setNodePortUDP
	setNodePortLocalUDP
	setNodePortSCTP
	setNodePortLocalSCTP
	setAddresses
	setFromPod
	setFromNode
	setFromOutside
	setReserved
	setExempt
	numSets
)

// setKinds has the names as kube-proxy spells them for IPv4.
var setKinds = [numSets]struct {
	name, typ string
	marks     bool // entries carry a packet mark and count the packets that get it
}{
	setClusterIP:         {"KUBE-CLUSTER-IP", ipset.HashIPPort, false},
	setLoopBack:          {"KUBE-LOOP-BACK", ipset.HashIPPortIP, false},
	setExternalIP:        {"KUBE-EXTERNAL-IP", ipset.HashIPPort, false},
	setExternalIPLocal:   {"KUBE-EXTERNAL-IP-LOCAL", ipset.HashIPPort, false},
	setLoadBalancer:      {"KUBE-LOAD-BALANCER", ipset.HashIPPort, false},
	setLoadBalancerLocal: {"KUBE-LOAD-BALANCER-LOCAL", ipset.HashIPPort, false},
	setFirewall:          {"KUBE-LOAD-BALANCER-FW", ipset.HashIPPort, false},
	setSourceCIDR:        {"KUBE-LOAD-BALANCER-SOURCE-CIDR", ipset.HashIPPortNet, false},
	setNodePortTCP:       {"KUBE-NODE-PORT-TCP", ipset.BitmapPort, false},
	setNodePortLocalTCP:  {"KUBE-NODE-PORT-LOCAL-TCP", ipset.BitmapPort, false},
	setNodePortUDP:       {"KUBE-NODE-PORT-UDP", ipset.BitmapPort, false},
	setNodePortLocalUDP:  {"KUBE-NODE-PORT-LOCAL-UDP", ipset.BitmapPort, false},
	setNodePortSCTP:      {"KUBE-NODE-PORT-SCTP-HASH", ipset.HashIPPort, false},
	setNodePortLocalSCTP: {"KUBE-NODE-PORT-LOCAL-SCTP-HASH", ipset.HashIPPort, false},
	setAddresses:         {"KUBE-IPVS-IPS", ipset.HashIP, false},
	setFromPod:           {"KUBE-FROM-POD", ipset.HashIPPort, true},
	setFromNode:          {"KUBE-FROM-NODE", ipset.HashIPPort, true},
	setFromOutside:       {"KUBE-FROM-OUTSIDE", ipset.HashIPPort, true},
	setReserved:          {"KUBE-SERVICE-CIDR", ipset.HashNet, false},
	setExempt:            {"KUBE-EXEMPT-IP", ipset.HashIP, false},
}

// foreignSets are sets that only kube-proxy's ipvs mode makes.
var foreignSets = []string{
	"KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-HEALTH-CHECK-NODE-PORT",
	"KUBE-NODE-PORT-SCTP", "KUBE-NODE-PORT-LOCAL-SCTP",
}

// setID is one ipset.
type setID struct {
	kind setKind
	ipv6 bool
}

// allSets lists the sets of a family.
func allSets(ipv6 bool) []setID {
	ids := make([]setID, numSets)
	for kind := range ids {
		ids[kind] = setID{setKind(kind), ipv6}
	}
	return ids
}

func (id setID) name() string { return familyName(setKinds[id.kind].name, id.ipv6) }

// familyName is the name of a set in a family. kube-proxy puts a 6 into names
// of IPv6 sets and cuts them to 31 bytes (IPSET_MAXNAMELEN).
func familyName(name string, ipv6 bool) string {
	if !ipv6 {
		return name
	}
	name = strings.Replace(name, "KUBE-", "KUBE-6-", 1)
	return name[:min(len(name), 31)]
}

func (id setID) typ() string { return setKinds[id.kind].typ }

// of is what ipset knows the set's kind by.
func (id setID) of() ipset.Kind {
	return ipset.Kind{Type: id.typ(), IPv6: id.ipv6, Marks: setKinds[id.kind].marks}
}

func (id setID) compare(o setID) int {
	return strings.Compare(id.name(), o.name())
}

// originSet is the set that holds the marks of an origin's packets.
func originSet(o model.Origin) setKind {
	return [...]setKind{model.FromPod: setFromPod, model.FromNode: setFromNode, model.FromOutside: setFromOutside}[o]
}

// Packet marks. Those of pools and verdicts have a range of their own, and
// IPVS compares them whole.
const (
	markRange     uint32 = 0x46000000
	markRangeMask uint32 = 0xff000000
	markRefuse           = markRange | 1
	markDrop             = markRange | 2
	firstPoolMark uint32 = 16 // lower ones are for verdicts

	defaultMasqueradeMark uint32 = 0x4000
)
