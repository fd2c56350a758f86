//go:build kubernetes

package lab_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/test/fakeapi"
)

// recordEnv is a directory for what this version of Kubernetes answers:
// test/fakeapi/recorded.
const recordEnv = "FAIRWAY_RECORD"

// TestControlPlane: what test/fakeapi says of Kubernetes is what Kubernetes
// does.
func TestControlPlane(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	t.Run("role", c.checkRole)
	t.Run("objects", c.record)
}

// checkRole: the role that the server has bootstrapped allows what
// fakeapi.NodeProxierOf says of its version.
func (c *cluster) checkRole(t *testing.T) {
	role, err := c.client.RbacV1().ClusterRoles().Get(t.Context(), "system:node-proxier", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allows := func(verb, group, resource string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	for _, rule := range fakeapi.NodeProxierOf(c.minor(t)) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !allows(verb, group, resource) {
						t.Errorf("system:node-proxier doesn't allow %s %s.%s", verb, resource, group)
					}
				}
			}
		}
	}
}

// record makes Services of further sorts and, if told where to, writes down what
// the server says of all of them: FAIRWAY_RECORD=$PWD/test/fakeapi/recorded.
func (c *cluster) record(t *testing.T) {
	ctx := t.Context()
	for _, s := range []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "headless", Labels: map[string]string{"team": "a"}}, Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "hello"}, PublishNotReadyAddresses: true, Ports: []corev1.ServicePort{{Port: 80}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "db", Port: 5432, AppProtocol: ptr.To("postgres")}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "balanced", Annotations: map[string]string{"example.com/pool": "one"}}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "hello"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			LoadBalancerSourceRanges: []string{"198.51.100.0/24"}, LoadBalancerClass: ptr.To("example.com/metal"),
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
			SessionAffinity:       corev1.ServiceAffinityClientIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
	} {
		if _, err := c.client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := c.client.CoreV1().Services("default").Get(ctx, "balanced", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	if _, err := c.client.CoreV1().Services("default").UpdateStatus(ctx, b, metav1.UpdateOptions{FieldManager: "example-controller"}); err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "outside-1", Labels: map[string]string{discoveryv1.LabelServiceName: "outside"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"172.30.100.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("db"), Port: ptr.To(int32(5432))}}}
	if _, err := c.client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{FieldManager: "kubectl-create"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the load balancer's EndpointSlices are there", func() bool {
		list, err := c.client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=balanced"})
		return err == nil && len(list.Items) > 0 && len(list.Items[0].Endpoints) == 4
	})
	c.openShop(t)
	c.write(t)
}

// write reads all objects as the server gives them.
func (c *cluster) write(t *testing.T) {
	t.Helper()
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	items := []any{}
	for _, r := range []struct {
		client              rest.Interface
		api, kind, resource string
	}{
		{c.client.CoreV1().RESTClient(), "v1", "Node", "nodes"},
		{c.client.CoreV1().RESTClient(), "v1", "Service", "services"},
		{c.client.DiscoveryV1().RESTClient(), "discovery.k8s.io/v1", "EndpointSlice", "endpointslices"},
	} {
		text, err := r.client.Get().Resource(r.resource).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 0 {
			t.Fatalf("the server has no %s", r.resource)
		}
		for _, item := range list.Items {
			item["apiVersion"], item["kind"] = r.api, r.kind // as kubectl completes lists' items
			items = append(items, item)
		}
	}
	dir := os.Getenv(recordEnv)
	if dir == "" {
		t.Logf("%d objects, not written, since %s is not set", len(items), recordEnv)
		return
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, version.Major+"."+strings.TrimSuffix(version.Minor, "+")+".yaml")
	head := "# What Kubernetes " + version.GitVersion + " answered: see foreign.recorded for the command.\n"
	if err := os.WriteFile(name, append([]byte(head), text...), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d objects are in %s", len(items), name)
}

// shop is a namespace as it is found in clusters with a history, on a node that
// no lab has: objects that kubelets, a cloud's controllers and people's tools
// wrote, each to its part.
const shop = "shop"

// Since which Kubernetes 1.x a Service may ask for endpoints nearby in a field,
// and for those of the client's node (KEP-4444, KEP-3015), by default.
const (
	preferCloseSince    = 31
	preferSameNodeSince = 34
)

// openShop makes the shop's node and objects, and waits until its endpoints are
// as the pods are: one ready, one going, one not ready yet.
func (c *cluster) openShop(t *testing.T) {
	t.Helper()
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace has its ServiceAccount", func() bool {
		_, err := c.client.CoreV1().ServiceAccounts(shop).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	c.registerWorker(t)
	c.shopServices(t)
	for i, name := range []string{"web-0", "web-1", "web-2"} {
		c.shopPod(t, name, "web", 5+i, name != "web-2")
	}
	c.shopPod(t, "db-0", "db", 8, true)
	err = c.client.CoreV1().Pods(shop).Delete(t.Context(), "web-1", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(3600))})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shop's EndpointSlices are there", func() bool {
		list, err := c.client.DiscoveryV1().EndpointSlices(shop).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil || len(list.Items) != 2 {
			return false
		}
		for _, slice := range list.Items {
			ready, terminating := 0, 0
			for _, e := range slice.Endpoints {
				ready += map[bool]int{true: 1}[ptr.Deref(e.Conditions.Ready, true)]
				terminating += map[bool]int{true: 1}[ptr.Deref(e.Conditions.Terminating, false)]
			}
			if len(slice.Endpoints) != 3 || ready != 1 || terminating != 1 {
				return false
			}
		}
		return true
	})
}

// registerWorker makes a node as a kubelet on a cloud's machine does.
func (c *cluster) registerWorker(t *testing.T) {
	t.Helper()
	ctx, nodes, kubelet := t.Context(), c.client.CoreV1().Nodes(), metav1.UpdateOptions{FieldManager: "kubelet"}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "worker-1",
			Labels: map[string]string{
				corev1.LabelHostname: "worker-1", corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "m7i.large",
				corev1.LabelTopologyZone: "eu-1a", corev1.LabelTopologyRegion: "eu-1", "node-role.kubernetes.io/worker": "",
			},
			Annotations: map[string]string{
				"csi.volume.kubernetes.io/nodeid": `{"ebs.csi.example.com":"i-0a1b2c3d4e5f60718"}`, "volumes.kubernetes.io/controller-managed-attach-detach": "true",
				"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///var/run/containerd/containerd.sock",
			},
		},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:10:244:1::/64"}, ProviderID: "example:///eu-1a/i-0a1b2c3d4e5f60718",
			Taints: []corev1.Taint{{Key: "example.com/dedicated", Value: "edge", Effect: corev1.TaintEffectPreferNoSchedule}},
		},
	}
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{FieldManager: kubelet.FieldManager}); err != nil {
		t.Fatal(err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write to new nodes too
		node, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status = workerStatus()
		_, err = nodes.UpdateStatus(ctx, node, kubelet)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func workerStatus() corev1.NodeStatus {
	now := metav1.Now()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8031568Ki"), corev1.ResourcePods: resource.MustParse("110")}
	return corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::11"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.11"}, {Type: corev1.NodeHostName, Address: "worker-1"},
		},
		Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", LastHeartbeatTime: now, LastTransitionTime: now},
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: now, LastTransitionTime: now},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			Architecture: "amd64", OperatingSystem: "linux", OSImage: "Ubuntu 24.04.2 LTS", KernelVersion: "6.8.0-60-generic", ContainerRuntimeVersion: "containerd://2.1.0",
			KubeletVersion: "v1.33.1", KubeProxyVersion: "v1.33.1", BootID: "8b1b1c6c-6a9d-4a8b-9b33-b7a5f6f7e133", MachineID: "1c2d3e4f5a6b4c7d8e9f0a1b2c3d4e33", //nolint:staticcheck // as kubelets of 1.33 say it
			Swap: &corev1.NodeSwapStatus{Capacity: ptr.To(int64(2 << 30))},
		},
		Images:           []corev1.ContainerImage{{Names: []string{"registry.k8s.io/kube-proxy:v1.33.1"}, SizeBytes: 24588537}},
		RuntimeHandlers:  []corev1.NodeRuntimeHandler{{Name: "runc", Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: ptr.To(true), RecursiveReadOnlyMounts: ptr.To(true)}}},
		Features:         &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(true)},
		DeclaredFeatures: []string{"InPlacePodLevelResourcesVerticalScaling"},
	}
}

// minor is the x of the server's version 1.x.
func (c *cluster) minor(t *testing.T) int {
	t.Helper()
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	minor, err := strconv.Atoi(strings.TrimSuffix(version.Minor, "+"))
	if err != nil {
		t.Fatal(err)
	}
	return minor
}

// shopServices makes one with everything that the version knows, which three
// parties have written, and one without a cluster IP.
func (c *cluster) shopServices(t *testing.T) {
	t.Helper()
	ctx, services, minor := t.Context(), c.client.CoreV1().Services(shop), c.minor(t)
	web := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}, Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"apiVersion":"v1","kind":"Service","metadata":{"annotations":{},"name":"web","namespace":"shop"},"spec":{"ports":[{"name":"http","port":80,"targetPort":"http"}],"selector":{"app":"web"}}}` + "\n",
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.1.80", IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack), Selector: map[string]string{"app": "web"},
			Ports:                    []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 31080, TargetPort: intstr.FromString("http"), AppProtocol: ptr.To("kubernetes.io/h2c")}},
			LoadBalancerSourceRanges: []string{"198.51.100.0/24"}, ExternalIPs: []string{"203.0.113.80"}, SessionAffinity: corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(600))}},
		},
	}
	switch {
	case minor >= preferSameNodeSince:
		web.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferSameNode)
	case minor >= preferCloseSince:
		web.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
	default:
		web.Annotations[corev1.AnnotationTopologyMode] = "Auto"
	}
	db := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "db"}, Ports: []corev1.ServicePort{{Name: "pg", Port: 5432}}}}
	for _, s := range []*corev1.Service{web, db} {
		if _, err := services.Create(ctx, s, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
			t.Fatal(err)
		}
	}
	labels := []byte(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"app.kubernetes.io/instance": "shop"}}}`)
	web, err := services.Patch(ctx, "web", types.ApplyPatchType, labels, metav1.PatchOptions{FieldManager: "argocd-controller"})
	if err != nil {
		t.Fatal(err)
	}
	web.Status = corev1.ServiceStatus{
		LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: "shop-1234.elb.example.com"},
			{IP: "203.0.113.33", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP), Ports: []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP}}}}},
		Conditions: []metav1.Condition{{Type: "example.com/Provisioned", Status: metav1.ConditionTrue, Reason: "Provisioned", LastTransitionTime: metav1.Now()}},
	}
	if _, err := services.UpdateStatus(ctx, web, metav1.UpdateOptions{FieldManager: "cloud-controller-manager"}); err != nil {
		t.Fatal(err)
	}
}

// shopPod makes a pod that no kubelet but the test knows of.
func (c *cluster) shopPod(t *testing.T, name, app string, number int, ready bool) {
	t.Helper()
	ctx, pods := t.Context(), c.client.CoreV1().Pods(shop)
	pod, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{
		NodeName: "worker-1", Hostname: name, Subdomain: app, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: app, Image: app, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
	if ready {
		condition.Status = corev1.ConditionTrue
	}
	four, six := fmt.Sprintf("10.244.1.%d", number), fmt.Sprintf("fd00:10:244:1::%d", number)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{condition}, HostIP: "192.0.2.11", PodIP: four, PodIPs: []corev1.PodIP{{IP: four}, {IP: six}}}
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
		t.Fatal(err)
	}
}
