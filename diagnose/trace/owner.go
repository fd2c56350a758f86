package trace

import (
	"strings"

	"github.com/fairway-net/fairway/internal/nftrace"
)

// owners of tables and chains, by what their names begin with.
var owners = []struct{ prefix, owner string }{
	{"firewalld", "firewalld"}, {"ufw", "ufw"}, {"DOCKER", "Docker"}, {"kube-proxy", "kube-proxy"},
	{"cali-", "Calico"}, {"CILIUM_", "Cilium"}, {"FLANNEL-", "Flannel"}, {"CNI-", "a CNI plugin"}, {"netavark", "Podman"}, {"NETAVARK", "Podman"},
	{"LIBVIRT_", "libvirt"}, {"libvirt", "libvirt"}, {"f2b-", "fail2ban"}, {"ISTIO_", "Istio"}, {"ts-", "Tailscale"}, {"WEAVE", "Weave Net"},
	{"ANTREA-", "Antrea"}, {"LXC", "LXC"}, {"lxc", "LXC"}, {"incus", "Incus"},
}

// ownTable is the name of Fairway's own table, and with a hyphen begins those of others.
const ownTable = "fairway"

// ownerOf says who made a table or a chain, as far as names tell, and whether that
// is Fairway. Chains that Fairway and kube-proxy both have are of the one whose mode
// it is.
func ownerOf(e nftrace.Event, plane Plane) (owner string, ours bool) {
	switch {
	case e.Table == ownTable || strings.HasPrefix(e.Table, ownTable+"-"):
		return "Fairway", true
	case strings.HasPrefix(e.Chain, "KUBE-") && plane.KubeProxyNames:
		return "Fairway", true
	case strings.HasPrefix(e.Chain, "KUBE-"):
		return "kube-proxy", false
	}
	for _, o := range owners {
		if strings.HasPrefix(e.Table, o.prefix) || strings.HasPrefix(e.Chain, o.prefix) {
			return o.owner, false
		}
	}
	return "", false
}

// whose says it in a sentence.
func (s *Step) whose() string {
	switch {
	case s.Ours:
		return "of Fairway's own"
	case s.Owner != "":
		return "of " + s.Owner + ", not Fairway's"
	}
	return "not Fairway's"
}

// where names the chain.
func (s *Step) where() string {
	where := strings.TrimSpace(s.Family + " " + s.Table + " " + s.Chain)
	if s.Legacy {
		where += " (iptables-legacy)"
	}
	return where
}
