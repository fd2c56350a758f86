package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab/topology"
)

// The routers that a lab can have, and the AS numbers of the two sides.
const (
	RouterFRR  = "frr"
	RouterBird = "bird"

	RouterASN = 64500
	NodesASN  = 64512
)

// daemon is a program of a router.
type daemon struct {
	name, program string
	args          []string
	socket        string // exists once the program works
}

// checkRouter says what is missing for a router.
func checkRouter(kind string) error {
	switch kind {
	case "":
		return nil
	case RouterFRR, RouterBird:
	default:
		return fmt.Errorf("router %q: must be %s or %s", kind, RouterFRR, RouterBird)
	}
	for _, d := range daemons(kind, "") {
		if _, err := exec.LookPath(d.program); err != nil {
			return fmt.Errorf("router %s: %w; the Debian packages frr and bird2 have the programs", kind, err)
		}
	}
	return nil
}

// daemons are the programs of a router whose files are in a directory.
func daemons(kind, dir string) []daemon {
	file := func(name string) string { return filepath.Join(dir, name) }
	if kind == RouterBird {
		return []daemon{{"bird", "/usr/sbin/bird", []string{"-f", "-c", file("bird.conf"), "-s", file("bird.ctl"), "-P", file("bird.pid")}, file("bird.ctl")}}
	}
	var list []daemon
	for _, name := range []string{"zebra", "bfdd", "bgpd"} {
		args := []string{"-u", "root", "-g", "root", "-f", file("frr.conf"), "-z", file("zserv"), "--vty_socket", dir, "-i", file(name + ".pid"), "-P", "0"}
		switch name {
		case "bfdd":
			args = append(args, "--bfdctl", file("bfdd.sock"))
		case "bgpd":
			args = append(args, "-p", "179")
		}
		list = append(list, daemon{name, "/usr/lib/frr/" + name, args, file(name + ".vty")})
	}
	return list
}

// startRouter puts the router in front of the nodes, and tells these of it.
func (s *supervisor) startRouter(ctx, within context.Context, nodes []*topology.Node) error {
	if s.config.Router == "" {
		return nil
	}
	router, err := s.net.AddRouter()
	if err != nil {
		return err
	}
	dir := RouterDir(s.config.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the router's directory: %w", err)
	}
	for name, text := range routerFiles(router, nodes) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("configure the router: %w", err)
		}
	}
	// FRR wants its user in this group, which the host's file need not say.
	groups := map[string]string{"/etc/group": filepath.Join(dir, "group")}
	start := func(cmd *exec.Cmd) error { return router.NS.StartWith(cmd, groups) }
	for _, d := range daemons(s.config.Router, dir) {
		r := &role{lab: s.config.Name, name: "router-" + d.name, cgroup: "router", program: d.program, start: start, args: func() []string { return d.args }}
		began := time.Now()
		s.group.Go(func() error { return r.run(ctx, func() bool { return time.Since(began) > 5*time.Second }) })
		if err := awaitSocket(within, d.socket); err != nil {
			return fmt.Errorf("start %s: %w", d.name, err)
		}
	}
	return s.announceToRouter(within, router)
}

// RouterDir has the files and sockets of a lab's router: of vtysh and birdc, among others.
func RouterDir(name string) string { return filepath.Join(Dir(name), "router") }

func awaitSocket(ctx context.Context, path string) error {
	for {
		conn, err := net.Dial("unix", path)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// routerFiles are the configurations of both routers. A session with each node for
// each family of the session's addresses; each carries both families.
func routerFiles(router *topology.Host, nodes []*topology.Node) map[string]string {
	var neighbors, activate4, activate6, bird strings.Builder
	for _, n := range nodes {
		for i, a := range n.Addresses {
			fmt.Fprintf(&neighbors, " neighbor %s remote-as %d\n neighbor %s passive\n neighbor %s bfd 20 100 100\n neighbor %s timers 3 9\n", a, NodesASN, a, a, a)
			fmt.Fprintf(&activate4, "  neighbor %s activate\n", a)
			fmt.Fprintf(&activate6, "  neighbor %s activate\n", a)
			fmt.Fprintf(&bird, `protocol bgp %s_%d from nodes {
  local %s as %d;
  neighbor %s as %d;
}
`, n.Name, 4+2*i, router.Addresses[i], RouterASN, a, NodesASN)
		}
	}
	frr := fmt.Sprintf(`frr defaults datacenter
hostname router
log stdout
router bgp %d
 bgp router-id %s
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
%s address-family ipv4 unicast
%s  maximum-paths 64
 exit-address-family
 address-family ipv6 unicast
%s  maximum-paths 64
 exit-address-family
`, RouterASN, router.IPv4(), neighbors.String(), activate4.String(), activate6.String())
	const groups = "root:x:0:\nfrrvty:x:1:root\n"
	return map[string]string{"group": groups, "frr.conf": frr, "bird.conf": fmt.Sprintf(birdHead, router.IPv4()) + bird.String()}
}

const birdHead = `log stderr all;
router id %s;
protocol device {}
protocol bfd { interface "eth0" { min rx interval 100 ms; min tx interval 100 ms; multiplier 20; }; }
protocol kernel { merge paths on; ipv4 { import none; export all; }; }
protocol kernel { merge paths on; ipv6 { import none; export all; }; }
template bgp nodes {
  passive;
  bfd on;
  hold time 9;
  error wait time 1, 2;
  ipv4 { import all; export none; extended next hop on; };
  ipv6 { import all; export none; };
}
`

// announceToRouter makes BGPPeers of the router, and has the nodes announce all
// pools to it.
func (s *supervisor) announceToRouter(ctx context.Context, router *topology.Host) error {
	config, err := kube.Config(Kubeconfig(s.config.Name))
	if err != nil {
		return err
	}
	metallb, err := kube.NewMetalLB(config)
	if err != nil {
		return err
	}
	if !metallb.Await(ctx) {
		return context.Cause(ctx)
	}
	const space = v1beta1.DefaultNamespace
	_, err = s.api.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Namespace %s: %w", space, err)
	}
	peer := func(name, address string) *v1beta2.BGPPeer {
		return &v1beta2.BGPPeer{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1beta2.GroupVersion.String(), Kind: "BGPPeer"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space},
			Spec:       v1beta2.BGPPeerSpec{MyASN: NodesASN, ASN: RouterASN, Address: address},
		}
	}
	for resource, objects := range map[string][]runtime.Object{
		"bgppeers": {peer("router-ipv4", router.IPv4().String()), peer("router-ipv6", router.IPv6().String())},
		"bgpadvertisements": {&v1beta1.BGPAdvertisement{
			TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "BGPAdvertisement"}, ObjectMeta: metav1.ObjectMeta{Name: "lab", Namespace: space},
		}},
	} {
		client := metallb.V1beta1
		if resource == "bgppeers" {
			client = metallb.V1beta2
		}
		for _, o := range objects {
			err := client.Post().Namespace(space).Resource(resource).Body(o).Do(ctx).Error()
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("tell the nodes of the router: create %s: %w", resource, err)
			}
		}
	}
	return nil
}
