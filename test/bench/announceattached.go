package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// uplink is a node's interface to a router that it is plugged into: such a router sees the
// carrier go, where one behind a switch sees nothing. Nodes reach each other as before.
const uplink = "uplink"

// uplinkAddresses are the router's and the node's on the link between them.
func uplinkAddresses(node string, ipv6 bool) (router, own string) {
	n := slices.Index(announcers, node)
	if ipv6 {
		return fmt.Sprintf("fd00:172:29:%d::1", n), fmt.Sprintf("fd00:172:29:%d::2", n)
	}
	return fmt.Sprintf("172.29.%d.1", n), fmt.Sprintf("172.29.%d.2", n)
}

// ipIn runs commands of ip in a host of the lab.
func ipIn(host string, commands ...string) error {
	var errs []error
	for _, c := range commands {
		errs = append(errs, runQuietly("ip", append([]string{"-n", topology.HostNamespace(announceLabName, host)}, strings.Fields(c)...)...))
	}
	return errors.Join(errs...)
}

// attach plugs the nodes that announce into the router, which takes sessions there.
func (l *announceLab) attach(ctx context.Context) error {
	for n, node := range announcers {
		port := fmt.Sprintf("port%d", n)
		// The kernel tells of a carrier at once where the ends' indexes differ; otherwise it does so
		// once a second for all interfaces of the machine, of which this one has many.
		err := ipIn("router", fmt.Sprintf("link add %s index %d type veth peer name %s netns %s", port, 1000+n, uplink, topology.HostNamespace(announceLabName, node)))
		for _, ipv6 := range []bool{false, true} {
			router, _ := uplinkAddresses(node, ipv6)
			err = errors.Join(err, ipIn("router", "address add "+router+lengthOf(ipv6)+" dev "+port))
		}
		if err := errors.Join(err, ipIn("router", "link set "+port+" up"), plugIn(ctx, l, node)); err != nil {
			return fmt.Errorf("plug %s into the router: %w", node, err)
		}
	}
	// No route leads to where the carrier is gone: routers of hardware are like that, and one of
	// Linux with this setting.
	for _, family := range []string{"ipv4", "ipv6"} {
		if _, err := l.inside(ctx, "router", "sysctl", "-qw", "net."+family+".conf.all.ignore_routes_with_linkdown=1"); err != nil {
			return err
		}
	}
	return l.acceptAttached()
}

func lengthOf(ipv6 bool) string { return map[bool]string{false: "/30", true: "/64 nodad"}[ipv6] }

// plugIn has a node use its link to the router, also after it was pulled.
func plugIn(_ context.Context, _ *announceLab, node string) error {
	commands := []string{"link set " + uplink + " up"}
	for _, ipv6 := range []bool{false, true} {
		router, own := uplinkAddresses(node, ipv6)
		client := map[bool]string{false: "172.31.0.0/30", true: "fd00:172:31::/64"}[ipv6] // behind the router
		commands = append(commands, "address replace "+own+lengthOf(ipv6)+" dev "+uplink, "route replace "+client+" via "+router+" dev "+uplink)
	}
	return ipIn(node, commands...)
}

// pull has a node's link to the router lose its carrier.
func pull(_ context.Context, _ *announceLab, node string) error {
	return ipIn(node, "link set "+uplink+" down")
}

// acceptAttached has the router accept sessions over the nodes' own links.
func (l *announceLab) acceptAttached() error {
	dir := lab.RouterDir(announceLabName)
	family := map[bool]string{false: "ipv4", true: "ipv6"}[l.options.IPv6]
	var bird strings.Builder
	// FRR 8.4.4 doesn't put a node back into a group of next hops that lost it with its carrier.
	frr := []string{"configure terminal", "no zebra nexthop kernel enable", fmt.Sprintf("router bgp %d", lab.RouterASN)}
	for _, node := range announcers {
		router, own := uplinkAddresses(node, l.options.IPv6)
		fmt.Fprintf(&bird, "protocol bgp %s_attached from nodes {\n  local %s as %d;\n  neighbor %s as %d;\n}\n", node, router, lab.RouterASN, own, lab.NodesASN)
		frr = append(frr, fmt.Sprintf("neighbor %s remote-as %d", own, lab.NodesASN), "neighbor "+own+" passive", "neighbor "+own+" timers 3 9",
			"address-family "+family+" unicast", "neighbor "+own+" activate", "exit-address-family")
	}
	if l.options.Router == lab.RouterBird {
		file, err := os.OpenFile(filepath.Join(dir, "bird.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("configure the router: %w", err)
		}
		_, err = file.WriteString(bird.String())
		return errors.Join(err, file.Close(), runQuietly("birdc", "-s", filepath.Join(dir, "bird.ctl"), "configure"))
	}
	args := []string{"--vty_socket", dir}
	for _, c := range frr {
		args = append(args, "-c", c)
	}
	return runQuietly("vtysh", args...)
}

// attachedPeers are those of nodes that are plugged into the router: each its own.
func (l *announceLab) attachedPeers() (peers []*v1beta2.BGPPeer) {
	for _, node := range announcers {
		router, _ := uplinkAddresses(node, l.options.IPv6)
		peers = append(peers, &v1beta2.BGPPeer{ObjectMeta: named("attached-" + node), Spec: v1beta2.BGPPeerSpec{
			MyASN: lab.NodesASN, ASN: lab.RouterASN, Address: router, EnableGracefulRestart: true,
			NodeSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{corev1.LabelHostname: node}}},
		}})
	}
	return peers
}

// peers are those of the way.
func (l *announceLab) peers() []*v1beta2.BGPPeer {
	switch l.way {
	case wayLayer2:
		return nil
	case wayAttached:
		return l.attachedPeers()
	}
	router := "172.30.99.1"
	if l.options.IPv6 {
		router = "fd00:172:30::2:1"
	}
	peer := &v1beta2.BGPPeer{ObjectMeta: named("graceful"), Spec: v1beta2.BGPPeerSpec{
		MyASN: lab.NodesASN, ASN: lab.RouterASN, Address: router, EnableGracefulRestart: true,
		NodeSelectors: []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: announcers},
		}}},
	}}
	if l.way == wayWatched {
		peer.Name, peer.Spec.EnableGracefulRestart, peer.Spec.BFDProfile = "watched", false, "fast"
	}
	return []*v1beta2.BGPPeer{peer}
}
