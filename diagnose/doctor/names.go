package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The DNS Service's name in every cluster.
const (
	dnsNamespace = "kube-system"
	dnsName      = "kube-dns"
)

// checkNames finds FW110: it asks for the Service's name as clients do, from each node that
// packets are sent from: the servers that the client's resolv.conf names, from its network
// namespace; where there is no such client, the cluster's DNS at the address of its Service,
// from a pod of the node or from the node itself.
func checkNames(ctx context.Context, e *Evidence) []Finding {
	dns := e.Objects.Service(dnsNamespace, dnsName)
	if dns == nil {
		return []Finding{{Code: NameUnresolved, Grade: Note, What: "there is no Service kube-system/kube-dns to ask"}}
	}
	cluster, err := netip.ParseAddr(dns.Spec.ClusterIP)
	if want := clusterIPs(e.Service); err != nil || len(want) == 0 {
		return nil
	}
	var list []Finding
	for _, n := range e.probing() {
		for _, network := range []string{"udp", "tcp"} {
			for _, f := range e.nameFrom(ctx, n, network, cluster) {
				if !slices.ContainsFunc(list, f.same) {
					list = append(list, f)
				}
			}
		}
	}
	return list
}

// nameFrom asks for the Service's name once from each place on a node where clients stand.
func (e *Evidence) nameFrom(ctx context.Context, n *Node, network string, cluster netip.Addr) []Finding {
	for _, client := range append(e.clients(n, cluster), podClient{}) {
		server := e.serverOf(client.addr, cluster)
		got, err := n.Probe.Lookup(ctx, client.addr, netip.AddrPortFrom(server, 53), network, e.fullName())
		if errors.Is(err, ErrNotThere) {
			continue
		}
		return e.judgeName(n, client, got, err, fmt.Sprintf("%s over %s at %s", e.fullName(), network, server))
	}
	return nil
}

func (e *Evidence) fullName() string {
	return e.Service.Name + "." + e.Service.Namespace + ".svc." + e.Domain
}

// serverOf is whom a client asks: the pod that the question is about asks the first server of
// its resolv.conf.
func (e *Evidence) serverOf(client, cluster netip.Addr) netip.Addr {
	if !client.IsValid() || client != e.Report.From.Addr || e.Client == nil || len(e.Client.Resolvers) == 0 {
		return cluster
	}
	for _, text := range e.Client.Resolvers[0].Servers {
		if a, err := netip.ParseAddr(text); err == nil {
			return a
		}
	}
	return cluster
}

// judgeName says what is wrong with an answer. Rules that drop what goes to port 53 are looked
// for where nothing came back.
func (e *Evidence) judgeName(n *Node, client podClient, got []netip.Addr, err error, asked string) []Finding {
	where := n.on("")
	if client.addr.IsValid() {
		where += "from " + client.name + ": "
	}
	want := clusterIPs(e.Service)
	slices.SortFunc(got, netip.Addr.Compare)
	switch {
	case err != nil:
		return []Finding{{Code: NameUnresolved, Grade: Likely, What: fmt.Sprintf("%s%s: %v%s", where, asked, err, n.dropsNames())}}
	case !slices.Equal(got, want):
		return []Finding{{Code: NameUnresolved, Grade: Proved, What: fmt.Sprintf("%s%s is %v, not %v", where, asked, got, want)}}
	}
	return nil
}

// dropsNames names the chains of others that may drop what goes to port 53.
func (n *Node) dropsNames() string {
	if n.Host == nil {
		return ""
	}
	var list []string
	for _, c := range n.Host.Chains {
		if c.DropsNames {
			list = append(list, fmt.Sprintf("chain %s of table %s %s", c.Name, c.Family, c.Table))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "; rules there drop port 53: " + join(list)
}

// clusterIPs are the Service's cluster IPs, sorted.
func clusterIPs(s *corev1.Service) []netip.Addr {
	var list []netip.Addr
	for _, text := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
