package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairway-net/fairway/test/wait"
)

// smallConfig has so few addresses and ports that a leak of one is felt.
func smallConfig(t *testing.T) Config {
	c := testConfig(t)
	c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/29"), netip.MustParsePrefix("fd00:96::/125")}
	c.NodePortRange = utilnet.PortRange{Base: 30000, Size: 4}
	return c
}

func nodePortService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
}

// usage reads the claims from etcd, and waits for the memory to agree.
func usage(t *testing.T, s *Server) map[string]string {
	t.Helper()
	resp, err := s.backend.Client.Client.Get(within(t), "/fairway/claims/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]string{}
	for _, kv := range resp.Kvs {
		claims[strings.TrimPrefix(string(kv.Key), "/fairway/claims/")] = strings.TrimPrefix(string(kv.Value), "/registry/services/")
	}
	for late := range wait.Tries(30 * time.Second) {
		taken, reserved := s.allocator.Usage()
		total := 0
		for _, n := range taken {
			total += n
		}
		if total == len(claims) && reserved == 0 {
			break
		}
		if late {
			t.Fatalf("the memory knows of %v, %d reserved; etcd of %v", taken, reserved, claims)
		}
	}
	return claims
}

// TestNothingLeaks does everything by which an address or a port could get
// lost, and compares what is claimed with what Services hold.
func TestNothingLeaks(t *testing.T) {
	s := start(t, smallConfig(t))
	services := client(t, s).CoreV1().Services("default")
	before := fmt.Sprint(usage(t, s))
	ctx := within(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unchanged := func(after string) {
		t.Helper()
		if got := fmt.Sprint(usage(t, s)); got != before {
			t.Fatalf("after %s: %s, want %s", after, got, before)
		}
	}

	for range 10 {
		svc, err := services.Create(ctx, nodePortService("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must(err)
		if svc.Spec.ClusterIP == "" || svc.Spec.Ports[0].NodePort == 0 {
			t.Fatalf("dry run shows no allocation: %v", svc.Spec)
		}
	}
	unchanged("dry-run creates")

	for range 10 {
		bad := nodePortService("bad")
		bad.Spec.Ports[0].Port = 0
		if _, err := services.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		bad = nodePortService("Bad")
		if _, err := services.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if _, err := client(t, s).CoreV1().Services("nowhere").Create(ctx, nodePortServiceIn("nowhere", "x"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if _, err := services.Create(ctx, nodePortService("kubernetes"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		taken := nodePortService("taken")
		taken.Spec.ClusterIP = "10.96.0.1"
		if _, err := services.Create(ctx, taken, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
	}
	unchanged("failed creates")

	dual := corev1.IPFamilyPolicyPreferDualStack
	svc := nodePortService("web")
	svc.Spec.IPFamilyPolicy = &dual
	svc, err := services.Create(ctx, svc, metav1.CreateOptions{})
	must(err)
	if n := len(usage(t, s)); n != 1+3 {
		t.Errorf("%d claims with one dual-stack NodePort Service, want 4", n)
	}
	for _, patch := range []string{
		`{"spec":{"ports":[{"port":0}]}}`,
		`{"spec":{"ports":[{"name":"a","port":81,"nodePort":40000}]}}`,
		`{"spec":{"clusterIP":"10.96.0.4","clusterIPs":["10.96.0.4"]}}`,
	} {
		if _, err := services.Patch(ctx, "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Fatalf("%s: %v", patch, err)
		}
	}
	stale := svc.DeepCopy()
	stale.ResourceVersion = "1"
	stale.Spec.Ports = append(stale.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
	stale.Spec.Ports[0].Name = "first"
	if _, err := services.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	if n := len(usage(t, s)); n != 1+3 {
		t.Errorf("%d claims after failed updates, want 4", n)
	}

	for _, step := range []struct {
		patch string
		want  int
	}{
		{`{"spec":{"type":"ClusterIP"}}`, 2},
		{`{"spec":{"ipFamilyPolicy":"SingleStack"}}`, 1},
		{`{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`, 2},
		{`{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`, 4},
		{`{"spec":{"externalTrafficPolicy":"Cluster"}}`, 3},
		{`{"spec":{"allocateLoadBalancerNodePorts":false}}`, 2},
		{`{"spec":{"type":"NodePort"}}`, 3},
		{`{"spec":{"type":"ExternalName","externalName":"example.com"}}`, 0},
		{`{"spec":{"type":"ClusterIP","externalName":null}}`, 1},
	} {
		_, err := services.Patch(ctx, "web", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatalf("%s: %v", step.patch, err)
		}
		if n := len(usage(t, s)) - 1; n != step.want {
			t.Errorf("%d claims after %s, want %d: %v", n, step.patch, step.want, usage(t, s))
		}
	}
	must(services.Delete(ctx, "web", metav1.DeleteOptions{}))
	unchanged("type changes and deletion")

	held := nodePortService("held")
	held.Finalizers = []string{"example.com/wait"}
	_, err = services.Create(ctx, held, metav1.CreateOptions{})
	must(err)
	must(services.Delete(ctx, "held", metav1.DeleteOptions{}))
	if n := len(usage(t, s)); n != 1+2 {
		t.Errorf("%d claims while a finalizer holds the Service, want 3", n)
	}
	_, err = services.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	must(err)
	unchanged("deletion through a finalizer")

	for i := range 4 {
		_, err := services.Create(ctx, nodePortService(fmt.Sprint("n", i)), metav1.CreateOptions{})
		must(err)
	}
	_, err = services.Create(ctx, nodePortService("one-too-many"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "range is full") {
		t.Errorf("error %v, want that the range is full", err)
	}
	many := nodePortService("many")
	for i := range 1000 {
		many.Spec.Ports = append(many.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(1000 + i)})
	}
	many.Spec.Ports[0].Name = "first"
	_, err = services.Create(ctx, many, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || strings.Count(err.Error(), "range is full") != 1 {
		t.Errorf("a Service with 1,001 node ports: error %.200v, want one: it is over with the first that there is no room for", err)
	}
	must(client(t, s).CoreV1().RESTClient().Delete().Namespace("default").Resource("services").
		Param("fieldSelector", "spec.type=NodePort").Do(ctx).Error())
	unchanged("filling the range and deleting all")
}

func nodePortServiceIn(namespace, name string) *corev1.Service {
	svc := nodePortService(name)
	svc.Namespace = namespace
	return svc
}

// TestAskedForNumbers: what is asked for is given or refused with the reason.
func TestAskedForNumbers(t *testing.T) {
	s := sharedServer(t)
	services := client(t, s).CoreV1().Services("default")
	create := func(name, ip string, nodePort int32, dryRun ...string) error {
		svc := nodePortService(name)
		svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort = ip, nodePort
		_, err := services.Create(within(t), svc, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	if err := create("a", "10.96.0.10", 30080); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		ip       string
		nodePort int32
		want     string
	}{
		{"10.96.0.10", 0, `Service "b" is invalid: spec.clusterIPs: Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		{"10.96.0.1", 0, `spec.clusterIPs: Invalid value: ["10.96.0.1"]: failed to allocate IP 10.96.0.1: provided IP is already allocated`},
		{"10.97.0.10", 0, `failed to allocate IP 10.97.0.10: the provided IP (10.97.0.10) is not in the valid range. The range of valid IPs is 10.96.0.0/16`},
		{"10.96.0.0", 0, `is not in the valid range`},
		{"10.96.255.255", 0, `is not in the valid range`},
		{"fd00::1", 0, `spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster`},
		{"nonsense", 0, `spec.clusterIPs[0]: Invalid value: "nonsense": must be a valid IP address`},
		{"", 30080, `spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated`},
		{"", 80, `spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767`},
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			if err := create("b", test.ip, test.nodePort, dryRun...); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("cluster IP %q, node port %d, dry run %v: error %v, want %q", test.ip, test.nodePort, dryRun, err, test.want)
			}
		}
	}
	// Freed numbers can be had at once.
	for range 5 {
		if err := services.Delete(within(t), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := create("a", "10.96.0.10", 30080); err != nil {
			t.Fatal(err)
		}
	}
	// A port's TCP and UDP share a node port, asked for or chosen.
	both := nodePortService("both")
	both.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP}}
	svc, err := services.Create(within(t), both, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if svc.Spec.Ports[0].NodePort != svc.Spec.Ports[1].NodePort {
		t.Errorf("TCP and UDP of one port have node ports %d and %d, want one", svc.Spec.Ports[0].NodePort, svc.Spec.Ports[1].NodePort)
	}
}

// TestAuditRepairs: claims that don't agree with the Services stored, after a
// restored backup say, are put right at start.
func TestAuditRepairs(t *testing.T) {
	config := testConfig(t)
	s, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	svc, err := client(t, s).CoreV1().Services("default").Create(within(t), nodePortService("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(usage(t, s))
	etcd := s.backend.Client.Client
	if _, err := etcd.Delete(within(t), "/fairway/claims/clusterip/"+svc.Spec.ClusterIP); err != nil {
		t.Fatal(err)
	}
	for _, orphan := range []string{"clusterip/10.96.5.5", "nodeport/30001"} {
		if _, err := etcd.Put(within(t), "/fairway/claims/"+orphan, "/registry/services/default/gone"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(usage(t, start(t, config))); got != want {
		t.Errorf("claims after the repair: %s, want %s", got, want)
	}
}

// TestConcurrentRequests: of many who ask for one number, one gets it.
func TestConcurrentRequests(t *testing.T) {
	s := sharedServer(t)
	services := client(t, s).CoreV1().Services("default")
	const rivals = 20
	results := make(chan error, rivals)
	for i := range rivals {
		go func(ctx context.Context) {
			svc := nodePortService(fmt.Sprint("rival-", i))
			svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort = "10.96.3.3", 30333
			_, err := services.Create(ctx, svc, metav1.CreateOptions{})
			results <- err
		}(t.Context())
	}
	won := 0
	for range rivals {
		switch err := <-results; {
		case err == nil:
			won++
		case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated"):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d Services got the one address", won)
	}
}
