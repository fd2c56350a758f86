package nftables

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/model"
)

// kubeProxyShape are rules as kube-proxy makes them in its nftables mode for
// these cluster IPs, as far as the first packet of a connection meets them: a
// verdict map to a chain for each Service, which leads to one for each endpoint.
// Source: KEP-3866.
func kubeProxyShape(table *model.Table) string {
	var services, elements, chains strings.Builder
	for i, f := range slices.Collect(table.Frontends()) {
		fmt.Fprintf(&elements, "%s . tcp . %d : goto service-%d,\n", f.Addr, f.Port, i)
		var endpoints []string
		for j, b := range table.Pool(f.Routes[0].Pool).Backends {
			name := fmt.Sprintf("endpoint-%d-%d", i, j)
			fmt.Fprintf(&chains, "chain %s {\nip saddr %s jump mark-for-masquerade\nmeta l4proto tcp dnat to %s\n}\n", name, b.Addr, b.AddrPort())
			endpoints = append(endpoints, fmt.Sprintf("%d : goto %s", j, name))
		}
		fmt.Fprintf(&services, "chain service-%d {\nip daddr %s tcp dport %d ip saddr != 10.244.0.0/16 jump mark-for-masquerade\nnumgen random mod %d vmap { %s }\n}\n",
			i, f.Addr, f.Port, len(endpoints), strings.Join(endpoints, ", "))
	}
	const key = "type ipv4_addr . inet_proto . inet_service : verdict"
	return "table ip kube-proxy {\n" +
		"set cluster-ips { type ipv4_addr; }\nset nodeport-ips { type ipv4_addr; elements = { 192.0.2.1 } }\n" +
		"map firewall-ips { " + key + "; }\nmap no-endpoint-services { " + key + "; }\n" +
		"map service-nodeports { type inet_proto . inet_service : verdict; }\n" +
		"chain mark-for-masquerade { meta mark set meta mark or 0x4000; }\n" +
		chains.String() + services.String() +
		"map service-ips { " + key + "; elements = {\n" + elements.String() + "} }\n" +
		`chain firewall-check { ip daddr . meta l4proto . th dport vmap @firewall-ips; }
chain endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
chain cluster-ips-check { ip daddr @cluster-ips reject; }
chain services {
ip daddr . meta l4proto . th dport vmap @service-ips
ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
}
chain masquerading {
meta mark and 0x4000 == 0 return
meta mark set meta mark xor 0x4000
masquerade fully-random
}
chain pre-dnat { type filter hook prerouting priority -110; ct state new jump firewall-check; }
chain forward { type filter hook forward priority -110; ct state new jump endpoints-check; ct state new jump cluster-ips-check; }
chain nat-prerouting { type nat hook prerouting priority -100; jump services; }
chain nat-postrouting { type nat hook postrouting priority 100; jump masquerading; }
}
`
}

// loadKubeProxyShape puts them into the kernel.
func loadKubeProxyShape(b testing.TB, table *model.Table) {
	b.Helper()
	file := filepath.Join(b.TempDir(), "kube-proxy.nft")
	if err := os.WriteFile(file, []byte(kubeProxyShape(table)), 0o600); err != nil {
		b.Fatal(err)
	}
	nft(b, "-f", file)
}
