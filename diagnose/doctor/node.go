package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// checkForwarding finds FW123 and FW124.
func checkForwarding(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if e.Host.Sysctls[name] != "0" {
			continue
		}
		grade := Likely
		if strings.Contains(name, "ipv6") {
			grade = Note // of importance to clusters with IPv6 only
		}
		list = append(list, Finding{Code: "FW123", Grade: grade, What: name + " is 0"})
	}
	if e.Host.Sysctls["net.bridge.bridge-nf-call-iptables"] == "0" {
		list = append(list, Finding{Code: "FW124", Grade: Note, What: "net.bridge.bridge-nf-call-iptables is 0; it matters if pods are on a bridge"})
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
	owned := map[string]Chain{}
	legacy, nft := "", ""
	for _, c := range e.Host.Chains {
		if c.Hook == "forward" && c.Drops {
			list = append(list, Finding{Code: "FW117", Grade: Likely, What: fmt.Sprintf("chain %s of table %s %s drops what no rule accepts", c.Name, c.Family, c.Table), Fix: e.letThrough([]Chain{c})})
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
			list = append(list, Finding{Code: "FW118", Grade: Note, What: f.owner + " has rules on this machine, which may drop packets of Services", Fix: e.letThrough([]Chain{c})})
		}
	}
	if legacy != "" && nft != "" {
		list = append(list, Finding{Code: "FW120", Grade: Likely, What: fmt.Sprintf("table %s has rules by iptables-legacy, and table %s by iptables-nft", legacy, nft)})
	}
	return list
}

// checkOtherProxies finds FW119: kube-proxy's nftables mode, or its iptables chains
// where no agent here has chains of the same names.
func checkOtherProxies(_ context.Context, e *Evidence) []Finding {
	for _, c := range e.Host.Chains {
		if c.Table == "kube-proxy" {
			return []Finding{{Code: "FW119", Grade: Likely, What: fmt.Sprintf("table %s kube-proxy is there: kube-proxy runs in nftables mode, or has left it", c.Family)}}
		}
	}
	if len(e.Agents) == 0 || slices.ContainsFunc(e.Agents, func(a Agent) bool { return a.KubeProxyNames || a.Err != "" }) {
		return nil
	}
	for _, c := range e.Host.Chains {
		if strings.HasPrefix(c.Name, "KUBE-SVC-") || strings.HasPrefix(c.Name, "KUBE-SEP-") {
			return []Finding{{Code: "FW119", Grade: Likely, What: fmt.Sprintf("table %s %s has chain %s: kube-proxy runs in iptables mode, or has left its rules", c.Family, c.Table, c.Name)}}
		}
	}
	return nil
}

// nearlyFull is the share of the connection table that is too much, in percent.
const nearlyFull = 90

// checkConntrack finds FW126. A full table drops packets; of one that is nearly full, the
// kernel's count of those that it has dropped proves it.
func checkConntrack(_ context.Context, e *Evidence) []Finding {
	count, err1 := strconv.Atoi(e.Host.Sysctls["net.netfilter.nf_conntrack_count"])
	limit, err2 := strconv.Atoi(e.Host.Sysctls["net.netfilter.nf_conntrack_max"])
	if err1 != nil || err2 != nil || limit == 0 {
		return nil
	}
	f := Finding{Code: "FW126", Grade: Note, What: fmt.Sprintf("%d of %d connections", count, limit)}
	switch {
	case count >= limit || e.Host.Full > 0 && count*100 >= limit*nearlyFull:
		f.Grade = Proved
	case count*100 >= limit*nearlyFull:
		f.Grade = Likely
	case e.Host.Full == 0:
		return nil
	}
	if e.Host.Full > 0 {
		f.What += fmt.Sprintf("; %d packets were dropped for want of room so far", e.Host.Full)
	}
	if e.Host.Clashed > 0 {
		f.What += fmt.Sprintf("; %d as another one had the same addresses and ports", e.Host.Clashed)
	}
	return []Finding{f}
}
