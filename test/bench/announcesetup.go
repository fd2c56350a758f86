package bench

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/lab"
)

// The pools: addresses of the nodes' own network, and of none that anybody has.
const (
	endpointPod         = "echo"
	nearPool, nearPool6 = "172.30.200.0/24", "fd00:172:30::c800/120"
	farPool, farPool6   = "10.99.0.0/16", "fd00:99::/112"
	portOfService       = 7
)

// address is the number n of the way's pool; 0 is the measured Service's.
func (l *announceLab) address(n int) netip.Addr {
	pools := map[bool]string{false: farPool, true: nearPool}
	if l.options.IPv6 {
		pools = map[bool]string{false: farPool6, true: nearPool6}
	}
	a := netip.MustParsePrefix(pools[l.way == wayLayer2]).Addr()
	for range n + 1 {
		a = a.Next()
	}
	return a
}

// fill makes endpoints and pools, and who announces what.
func (l *announceLab) fill(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: endpointPod, Labels: map[string]string{"app": "echo"}},
		Spec: corev1.PodSpec{NodeName: endpointsNode, Containers: []corev1.Container{{Name: "echo", Image: "echo", Ports: []corev1.ContainerPort{
			{ContainerPort: portOfService, Protocol: corev1.ProtocolTCP}, {ContainerPort: portOfService, Protocol: corev1.ProtocolUDP},
		}}}},
	}
	if _, err := l.api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Pod: %w", err)
	}
	if err := l.metallb.V1beta1.Delete().Namespace(v1beta1.DefaultNamespace).Resource("bgpadvertisements").Name("lab").Do(ctx).Error(); err != nil {
		return fmt.Errorf("delete the lab's own BGPAdvertisement: %w", err)
	}
	selected := []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: announcers},
	}}}
	for _, o := range []struct {
		resource string
		object   runtime.Object
	}{
		{"ipaddresspools", &v1beta1.IPAddressPool{ObjectMeta: named("near"), Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{nearPool, nearPool6}}}},
		{"ipaddresspools", &v1beta1.IPAddressPool{ObjectMeta: named("far"), Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{farPool, farPool6}}}},
		{"l2advertisements", &v1beta1.L2Advertisement{ObjectMeta: named("near"), Spec: v1beta1.L2AdvertisementSpec{IPAddressPools: []string{"near"}, NodeSelectors: selected}}},
		{"bgpadvertisements", &v1beta1.BGPAdvertisement{ObjectMeta: named("far"), Spec: v1beta1.BGPAdvertisementSpec{IPAddressPools: []string{"far"}, NodeSelectors: selected}}},
		{"bfdprofiles", &v1beta1.BFDProfile{ObjectMeta: named("fast"), Spec: v1beta1.BFDProfileSpec{
			TransmitInterval: ptr.To[uint32](50), ReceiveInterval: ptr.To[uint32](50), DetectMultiplier: ptr.To[uint32](3)}}},
	} {
		if err := l.metallb.V1beta1.Post().Namespace(v1beta1.DefaultNamespace).Resource(o.resource).Body(o.object).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create %s: %w", o.resource, err)
		}
	}
	return nil
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: v1beta1.DefaultNamespace}
}

// use has nodes announce by a way, makes the measured Service, and waits for it.
func (l *announceLab) use(ctx context.Context, way string) error {
	l.way = way
	if l.pings != nil {
		l.pings.close()
	}
	if way == wayAttached {
		if err := l.attach(ctx); err != nil {
			return err
		}
	}
	if err := l.peerWith(ctx); err != nil {
		return err
	}
	name := "far"
	if way == wayLayer2 {
		name = "near"
	}
	if err := l.createService(ctx, name, l.address(0)); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	l.pings = &pings{ns: l.hosts["client"], to: netip.AddrPortFrom(l.address(0), portOfService)}
	return l.settle(ctx)
}

// createService makes a Service with an address.
func (l *announceLab) createService(ctx context.Context, name string, address netip.Addr) error {
	family := corev1.IPv4Protocol
	if address.Is6() {
		family = corev1.IPv6Protocol
	}
	annotations := map[string]string{v1beta1.AnnotationLoadBalancerIPs: address.String()}
	for _, a := range l.options.Annotations {
		key, value, _ := strings.Cut(a, "=")
		annotations[key] = value
	}
	_, err := l.api.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "echo"}, IPFamilies: []corev1.IPFamily{family},
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: portOfService, Protocol: corev1.ProtocolTCP}, {Name: "udp", Port: portOfService, Protocol: corev1.ProtocolUDP},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Service %s: %w", name, err)
	}
	return nil
}

// peerWith has nodes hold the sessions that the way needs, and no others.
func (l *announceLab) peerWith(ctx context.Context) error {
	peers := l.metallb.V1beta2
	for _, name := range []string{"router-ipv4", "router-ipv6", "graceful", "watched", "attached-node1", "attached-node2"} {
		err := peers.Delete().Namespace(v1beta1.DefaultNamespace).Resource("bgppeers").Name(name).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete BGPPeer %s: %w", name, err)
		}
	}
	for _, peer := range l.peers() {
		if err := peers.Post().Namespace(v1beta1.DefaultNamespace).Resource("bgppeers").Body(peer).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create BGPPeer: %w", err)
		}
	}
	return nil
}

// quicken has the lab's router send BFD packets every 50 ms; its own setting
// tolerates a busy machine.
func (l *announceLab) quicken() error {
	dir := lab.RouterDir(announceLabName)
	if l.options.Router == lab.RouterBird {
		file := filepath.Join(dir, "bird.conf")
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("quicken the router: %w", err)
		}
		fast := strings.NewReplacer("100 ms", "50 ms", "multiplier 20", "multiplier 3").Replace(string(text))
		if err := os.WriteFile(file, []byte(fast), 0o644); err != nil {
			return fmt.Errorf("quicken the router: %w", err)
		}
		return runQuietly("birdc", "-s", filepath.Join(dir, "bird.ctl"), "configure")
	}
	args := []string{"--vty_socket", dir, "-c", "configure terminal", "-c", fmt.Sprintf("router bgp %d", lab.RouterASN)}
	for n := range 3 {
		for _, node := range []string{fmt.Sprintf("172.30.0.%d", 11+n), fmt.Sprintf("fd00:172:30::%x", 11+n)} {
			// FRR lets a session keep its times while it has BFD.
			args = append(args, "-c", "no neighbor "+node+" bfd", "-c", "neighbor "+node+" bfd 3 50 50")
		}
	}
	return runQuietly("vtysh", args...)
}

func runQuietly(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}
