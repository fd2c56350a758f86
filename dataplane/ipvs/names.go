package ipvs

import (
	"strings"

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

// The set types (linux/netfilter/ipset).
const (
	hashIPPort    = "hash:ip,port"
	hashIPPortIP  = "hash:ip,port,ip"
	hashIPPortNet = "hash:ip,port,net"
	hashIP        = "hash:ip"
	hashNet       = "hash:net"
	bitmapPort    = "bitmap:port"
)

// setKinds has the names as kube-proxy spells them for IPv4.
var setKinds = [numSets]struct {
	name, typ string
	marks     bool // entries carry a packet mark and count the packets that get it
}{
	setClusterIP:         {"KUBE-CLUSTER-IP", hashIPPort, false},
	setLoopBack:          {"KUBE-LOOP-BACK", hashIPPortIP, false},
	setExternalIP:        {"KUBE-EXTERNAL-IP", hashIPPort, false},
	setExternalIPLocal:   {"KUBE-EXTERNAL-IP-LOCAL", hashIPPort, false},
	setLoadBalancer:      {"KUBE-LOAD-BALANCER", hashIPPort, false},
	setLoadBalancerLocal: {"KUBE-LOAD-BALANCER-LOCAL", hashIPPort, false},
	setFirewall:          {"KUBE-LOAD-BALANCER-FW", hashIPPort, false},
	setSourceCIDR:        {"KUBE-LOAD-BALANCER-SOURCE-CIDR", hashIPPortNet, false},
	setNodePortTCP:       {"KUBE-NODE-PORT-TCP", bitmapPort, false},
	setNodePortLocalTCP:  {"KUBE-NODE-PORT-LOCAL-TCP", bitmapPort, false},
	setNodePortUDP:       {"KUBE-NODE-PORT-UDP", bitmapPort, false},
	setNodePortLocalUDP:  {"KUBE-NODE-PORT-LOCAL-UDP", bitmapPort, false},
	setNodePortSCTP:      {"KUBE-NODE-PORT-SCTP-HASH", hashIPPort, false},
	setNodePortLocalSCTP: {"KUBE-NODE-PORT-LOCAL-SCTP-HASH", hashIPPort, false},
	setAddresses:         {"KUBE-IPVS-IPS", hashIP, false},
	setFromPod:           {"KUBE-FROM-POD", hashIPPort, true},
	setFromNode:          {"KUBE-FROM-NODE", hashIPPort, true},
	setFromOutside:       {"KUBE-FROM-OUTSIDE", hashIPPort, true},
	setReserved:          {"KUBE-SERVICE-CIDR", hashNet, false},
	setExempt:            {"KUBE-EXEMPT-IP", hashIP, false},
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
