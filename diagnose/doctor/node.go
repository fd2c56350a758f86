package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// checkForwarding finds FW123, FW124 and FW134.
func checkForwarding(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, n := range e.looked() {
		for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
			if n.Host.Sysctls[name] != "0" {
				continue
			}
			grade := Likely
			if strings.Contains(name, "ipv6") {
				grade = Note // of importance to clusters with IPv6 only
			}
			list = append(list, Finding{Code: NotForwarding, Grade: grade, What: n.on(name + " is 0")})
		}
		if n.Host.Sysctls["net.bridge.bridge-nf-call-iptables"] == "0" {
			list = append(list, Finding{Code: BridgeBypassesFirewall, Grade: Note, What: n.on("net.bridge.bridge-nf-call-iptables is 0; it matters if pods are on a bridge")})
		}
		for _, bridge := range n.Host.UplinkBridges {
			list = append(list, Finding{Code: UplinkBridged, Grade: Note, What: n.on("net.bridge.bridge-nf-call-iptables is 1, and the uplink is the bridge " + bridge)})
		}
	}
	return list
}

// owners of tables and chains, by what their names begin with.
var firewalls = []struct{ prefix, owner string }{
	{"firewalld", "firewalld"}, {"ufw", "ufw"}, {"DOCKER", "Docker"},
}

// checkFirewall finds FW117, FW118 and FW120.
func checkFirewall(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, n := range e.looked() {
		list = append(list, e.firewallOf(n)...)
	}
	return list
}

// firewallOf finds them on one node.
func (e *Evidence) firewallOf(n *Node) []Finding {
	var list []Finding
	owned := map[string]Chain{}
	legacy, nft := "", ""
	for _, c := range n.Host.Chains {
		if c.Hook == "forward" && c.Drops {
			list = append(list, Finding{Code: ForwardPolicyDrops, Grade: Likely, What: n.on(fmt.Sprintf("chain %s of table %s %s drops what no rule accepts", c.Name, c.Family, c.Table)), Fix: e.letThrough([]Chain{c})})
		}
		if owner := c.owner(); owner != "" {
			owned[owner] = c
		}
		switch iptables := c.Table == "filter" || c.Table == "nat"; {
		case iptables && c.Legacy && c.Rules > 0:
			legacy = c.Table
		case iptables && c.Rules > 0:
			nft = c.Table
		}
	}
	for _, f := range firewalls {
		if c, there := owned[f.owner]; there {
			list = append(list, Finding{Code: ForeignFirewall, Grade: Note, What: fmt.Sprintf("%s has rules on %s, which may drop packets of Services", f.owner, n), Fix: e.letThrough([]Chain{c})})
		}
	}
	if legacy != "" && nft != "" {
		list = append(list, Finding{Code: MixedIPTables, Grade: Likely, What: n.on(fmt.Sprintf("table %s has rules by iptables-legacy, and table %s by iptables-nft", legacy, nft))})
	}
	return list
}

// checkOtherProxies finds FW119: kube-proxy's nftables mode, or its iptables chains
// where no agent has chains of the same names.
func checkOtherProxies(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, n := range e.looked() {
		if f, found := e.otherProxyOn(n); found {
			list = append(list, f)
		}
	}
	return list
}

func (e *Evidence) otherProxyOn(n *Node) (f Finding, found bool) {
	for _, c := range n.Host.Chains {
		if c.Table == "kube-proxy" {
			return Finding{Code: OtherProxy, Grade: Likely, What: n.on(fmt.Sprintf("table %s kube-proxy is there: kube-proxy runs in nftables mode, or has left it", c.Family))}, true
		}
	}
	agents := slices.DeleteFunc(slices.Clone(e.Agents), func(a Agent) bool { return n.Name != "" && a.Node != n.Name })
	if len(agents) == 0 || slices.ContainsFunc(agents, func(a Agent) bool { return a.KubeProxyNames || a.Err != "" }) {
		return f, false
	}
	for _, c := range n.Host.Chains {
		if strings.HasPrefix(c.Name, "KUBE-SVC-") || strings.HasPrefix(c.Name, "KUBE-SEP-") {
			return Finding{Code: OtherProxy, Grade: Likely, What: n.on(fmt.Sprintf("table %s %s has chain %s: kube-proxy runs in iptables mode, or has left its rules", c.Family, c.Table, c.Name))}, true
		}
	}
	return f, false
}

// nearlyFull is the share of the connection table that is too much, in percent.
const nearlyFull = 90

// checkConntrack finds FW126. A full table drops packets; of one that is nearly full, the
// kernel's count of those that it has dropped proves it.
func checkConntrack(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, n := range e.looked() {
		if f, found := n.Host.conntrack(); found {
			f.What = n.on(f.What)
			list = append(list, f)
		}
	}
	return list
}

func (h *Host) conntrack() (f Finding, found bool) {
	count, err1 := strconv.Atoi(h.Sysctls["net.netfilter.nf_conntrack_count"])
	limit, err2 := strconv.Atoi(h.Sysctls["net.netfilter.nf_conntrack_max"])
	if err1 != nil || err2 != nil || limit == 0 {
		return f, false
	}
	f = Finding{Code: ConntrackFull, Grade: Note, What: fmt.Sprintf("%d of %d connections", count, limit)}
	switch {
	case count >= limit || h.Full > 0 && count*100 >= limit*nearlyFull:
		f.Grade = Proved
	case count*100 >= limit*nearlyFull:
		f.Grade = Likely
	case h.Full == 0:
		return f, false
	}
	if h.Full > 0 {
		f.What += fmt.Sprintf("; %d packets were dropped for want of room so far", h.Full)
	}
	if h.Clashed > 0 {
		f.What += fmt.Sprintf("; %d as another one had the same addresses and ports", h.Clashed)
	}
	return f, true
}
