package planes

import (
	"strings"
	"testing"
)

// TestLeftovers: whatever a plane leaves on the node is found; what iptables
// itself leaves behind a deleted rule isn't held against a plane.
func TestLeftovers(t *testing.T) {
	s := newTopology(t)
	for _, c := range []struct{ leave, clean, complaint string }{
		{"nft add table inet fairway", "nft delete table inet fairway", "table"},
		{"nft add table ip nat", "nft delete table ip nat", ""},
		{"iptables-nft -t nat -N KUBE-SERVICES", "iptables-nft -t nat -X KUBE-SERVICES", "KUBE-SERVICES"},
		{"iptables-nft -P FORWARD DROP", "iptables-nft -P FORWARD ACCEPT", "drop"},
		{"iptables-legacy -t nat -N KUBE-SERVICES", "iptables-legacy -t nat -X KUBE-SERVICES", "KUBE-SERVICES"},
		{"ip6tables-legacy -A FORWARD -j ACCEPT", "ip6tables-legacy -F", "ACCEPT"},
		{"iptables-legacy -t nat -L", "true", ""},
		{"ip addr add 10.96.0.1/32 dev lo", "ip addr del 10.96.0.1/32 dev lo", "10.96.0.1"},
		{"ip link add left type bridge", "ip link del left", "left"},
		{"ip rule add fwmark 1 table 100", "ip rule del fwmark 1 table 100", "100"},
		{"ip -6 route add local fd00:10:96::/112 dev lo table 100", "ip -6 route flush table 100", "fd00:10:96::"},
		{"tc qdisc add dev eth0 clsact", "tc qdisc del dev eth0 clsact", "clsact"},
		{"ipset create KUBE-CLUSTER-IP hash:ip,port", "ipset destroy KUBE-CLUSTER-IP", "KUBE-CLUSTER-IP"},
		{"sysctl -qw net.ipv4.conf.all.route_localnet=1", "sysctl -qw net.ipv4.conf.all.route_localnet=0", "route_localnet"},
	} {
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := playBare(t, s, "run "+c.leave); err != nil {
			t.Fatal(err)
		}
		err := s.Left(t.TempDir())
		if c.complaint == "" && err != nil {
			t.Errorf("%s: %v", c.leave, err)
		}
		if c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)) {
			t.Errorf("%s: %v, expected %s to be found", c.leave, err, c.complaint)
		}
		if err := playBare(t, s, "run "+c.clean); err != nil {
			t.Fatal(err)
		}
		s.before = nil
	}
}
