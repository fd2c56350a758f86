package planes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/test/fakeapi"
)

// kubeProxy is the real kube-proxy on a topology's node, with an API of its own.
type kubeProxy struct {
	t       *testing.T
	topo    *Topology
	program string
	mode    string
	dir     string
	api     *fakeapi.Server
	config  map[string]string // as in the step config
	sent    map[string][]byte // objects that the API has, by resource, namespace and name
	marks   int
	cmd     *exec.Cmd // nil while it doesn't run
	log     *tail
}

// startKubeProxy makes an API within the node's namespace, and the proxy.
func startKubeProxy(t *testing.T, topo *Topology, program, mode string) *kubeProxy {
	t.Helper()
	k := &kubeProxy{t: t, topo: topo, program: program, mode: mode, dir: t.TempDir(), api: fakeapi.NewServer(),
		config: map[string]string{"cluster-cidr": "10.244.0.0/16,fd00:10:244::/56"}, sent: map[string][]byte{}}
	var url string
	var ca []byte
	var closer func()
	err := topo.node.Do(func() (err error) {
		url, ca, closer, err = k.api.Listen("127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closer)
	kubeconfig := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x",
"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority": %q}}],
"users": [{"name": "x", "user": {}}], "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}`,
		url, filepath.Join(k.dir, "ca.crt"))
	for name, text := range map[string]string{"ca.crt": string(ca), "kubeconfig": kubeconfig} {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.apply("servicecidrs", "", "kubernetes", &networkingv1.ServiceCIDR{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"}, ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:10:96::/112"}},
	})
	k.node(NewCluster())
	t.Cleanup(func() {
		if err := k.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("kube-proxy said: %s", k.log)
		}
	})
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	return k
}

// follow forgets what another case has sent.
func (k *kubeProxy) follow(c *Cluster) {
	if err := k.push(c); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kubeProxy) configure(fields []string) {
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		k.config[key] = value
	}
}

// configuration is the step's settings in kube-proxy's words. It doesn't know
// the ranges of Services by configuration, but by ServiceCIDR objects.
func (k *kubeProxy) configuration() string {
	local := "ClusterCIDR"
	prefix, _, _ := strings.Cut(k.config["pod-interfaces"], ",")
	switch {
	case k.config["pods-of-node"] == "true":
		local = "NodeCIDR"
	case strings.HasSuffix(k.config["pod-interfaces"], "*"):
		prefix = k.config["pod-interfaces"][strings.LastIndex(k.config["pod-interfaces"], ",")+1:]
		local = "InterfaceNamePrefix"
	case prefix != "":
		local = "BridgeInterface"
	}
	nodePorts := "null"
	if value := k.config["nodeport-addresses"]; value != "" {
		nodePorts = `["` + strings.ReplaceAll(value, ",", `","`) + `"]`
	}
	localhost := "null"
	if value := k.config["localhost-nodeports"]; value != "" {
		localhost = value
	}
	all := "false"
	if value := k.config["masquerade-all"]; value != "" {
		all = value
	}
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
hostnameOverride: %s
mode: %s
clusterCIDR: %q
detectLocalMode: %s
detectLocal: {bridgeInterface: %q, interfaceNamePrefix: %q}
nodePortAddresses: %s
iptables: {minSyncPeriod: 10ms, masqueradeAll: %s, localhostNodePorts: %s}
nftables: {minSyncPeriod: 10ms, masqueradeAll: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, filepath.Join(k.dir, "kubeconfig"), NodeName, k.mode, k.config["cluster-cidr"], local, prefix,
		strings.TrimSuffix(prefix, "*"), nodePorts, all, localhost, all)
}

// start starts kube-proxy and waits until it has programmed the node.
func (k *kubeProxy) start() error {
	file := filepath.Join(k.dir, "config.yaml")
	if err := os.WriteFile(file, []byte(k.configuration()), 0o600); err != nil {
		return err
	}
	k.log = &tail{}
	cmd := exec.Command(k.program, "--config", file)
	cmd.Stdout, cmd.Stderr = k.log, k.log
	if err := k.topo.node.Start(cmd); err != nil {
		return err
	}
	k.cmd = cmd
	return k.await(0)
}

func (k *kubeProxy) stop() error {
	if k.cmd == nil {
		return nil
	}
	cmd := k.cmd
	k.cmd = nil
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // it was killed, and says so
	return nil
}

func (k *kubeProxy) apply(resource, namespace, name string, object any) {
	text, err := json.Marshal(object)
	if err != nil {
		k.t.Fatal(err)
	}
	key := resource + "/" + namespace + "/" + name
	if bytes.Equal(k.sent[key], text) {
		return
	}
	if err := k.api.Apply(text); err != nil {
		k.t.Fatal(err)
	}
	k.sent[key] = text
}

func (k *kubeProxy) node(c *Cluster) {
	n := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, UID: "n", Labels: map[string]string{corev1.LabelTopologyZone: c.node.Zone}},
	}
	for _, p := range c.node.PodCIDRs {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, p.String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	for _, a := range c.node.Primary {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	k.apply("nodes", "", NodeName, n)
}

// push has the API hold what the cluster does, and waits until kube-proxy has
// programmed it.
func (k *kubeProxy) push(c *Cluster) error {
	k.node(c)
	have := maps.Clone(k.sent)
	for _, s := range c.services {
		s = s.DeepCopy()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
		completeFamilies(s)
		k.apply("services", s.Namespace, s.Name, s)
		delete(have, "services/"+s.Namespace+"/"+s.Name)
	}
	for _, s := range c.slices {
		s = s.DeepCopy()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
		k.apply("endpointslices", s.Namespace, s.Name, s)
		delete(have, "endpointslices/"+s.Namespace+"/"+s.Name)
	}
	for key := range have {
		part := strings.Split(key, "/")
		if part[0] != "services" && part[0] != "endpointslices" || part[1] == markNamespace {
			continue
		}
		if err := k.api.Delete(part[0], part[1], part[2]); err != nil {
			return err
		}
		delete(k.sent, key)
	}
	if k.cmd == nil {
		return nil
	}
	return k.mark()
}

// completeFamilies fills in what the API server would: the families of the
// cluster IPs.
func completeFamilies(s *corev1.Service) {
	if len(s.Spec.IPFamilies) > 0 {
		return
	}
	for _, ip := range s.Spec.ClusterIPs {
		family := corev1.IPv4Protocol
		if strings.Contains(ip, ":") {
			family = corev1.IPv6Protocol
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
	}
}

const markNamespace = "zz-mark"

// mark changes a Service of its own and its EndpointSlices, the last of all, and
// waits until kube-proxy has programmed that. (Its metrics don't tell what it hasn't
// heard of yet: Services and EndpointSlices come by different watches.)
func (k *kubeProxy) mark() error {
	k.marks++
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: markNamespace, Name: "mark"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: markIPs[0], ClusterIPs: markIPs[:],
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Port: int32(k.marks), Protocol: corev1.ProtocolTCP}},
		},
	}
	now := time.Now()
	k.apply("services", s.Namespace, s.Name, s)
	for family, endpoint := range k.markEndpoints() {
		name := []string{"mark-4", "mark-6"}[family]
		k.apply("endpointslices", markNamespace, name, &discoveryv1.EndpointSlice{
			TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta:  metav1.ObjectMeta{Namespace: markNamespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "mark"}},
			AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[family],
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{endpoint}}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](1), Protocol: ptr.To(corev1.ProtocolTCP)}},
		})
	}
	if err := k.awaitMark(); err != nil {
		return err
	}
	return k.await(float64(now.UnixNano()) / 1e9)
}

// markIPs are the cluster IPs of the Service to wait for.
var markIPs = [...]string{"10.96.255.254", "fd00:10:96::fffe"}

// markEndpoints are the endpoints of the latest mark, of each family.
func (k *kubeProxy) markEndpoints() [2]string {
	return [2]string{fmt.Sprintf("10.255.%d.%d", k.marks>>8, k.marks&0xff), fmt.Sprintf("fd00:10:255::%x", k.marks)}
}

// awaitMark waits until the kernel has the latest mark.
func (k *kubeProxy) awaitMark() error {
	var missing string
	var err error
	for range wait.Tries(30 * time.Second) {
		if missing, err = k.missingOfMark(); err != nil || missing == "" {
			return err
		}
	}
	return fmt.Errorf("kube-proxy doesn't program %s; it said: %s", missing, k.log)
}

// missingOfMark is what the rules should have of the latest mark and don't.
func (k *kubeProxy) missingOfMark() (string, error) {
	for family, endpoint := range k.markEndpoints() {
		command := []string{[]string{"iptables-save", "ip6tables-save"}[family], "-t", "nat"}
		service := fmt.Sprintf(`-d %s/\d+ .*--dport %d `, regexp.QuoteMeta(markIPs[family]), k.marks)
		to := `--to-destination \[?` + regexp.QuoteMeta(endpoint) + `\]?:1\b`
		if k.mode == "nftables" {
			command = []string{"nft", "list", "table", []string{"ip", "ip6"}[family], "kube-proxy"}
			service = fmt.Sprintf(`%s \. tcp \. %d : `, regexp.QuoteMeta(markIPs[family]), k.marks)
			to = regexp.QuoteMeta(endpoint) + `( \. |\]?:)1\b`
		}
		var rules, failure bytes.Buffer
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stdout, cmd.Stderr = &rules, &failure
		err := k.topo.node.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, &failure)
		}
		for _, want := range []string{service, to} {
			if !regexp.MustCompile(want).Match(rules.Bytes()) {
				return want, nil
			}
		}
	}
	return "", nil
}

// await waits until kube-proxy has programmed both families since a time, and
// all that it wanted to.
func (k *kubeProxy) await(since float64) error {
	var last error
	for range wait.Tries(30 * time.Second) {
		queued, programmed, err := k.timestamps()
		if err == nil && len(programmed) == 2 {
			done := true
			for family, at := range programmed {
				done = done && at >= since && at >= queued[family]
			}
			if done {
				return nil
			}
		}
		if last = err; err == nil {
			last = errors.New("its metrics say that it hasn't")
		}
	}
	return fmt.Errorf("kube-proxy doesn't program the node: %w; it said: %s", last, k.log)
}

// timestamps reads from kube-proxy's metrics when it wanted to program each IP
// family, and when it did.
func (k *kubeProxy) timestamps() (queued, programmed map[string]float64, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: k.topo.node.DialContext, DisableKeepAlives: true}}
	resp, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		return nil, nil, err
	}
	queued, programmed = map[string]float64{}, map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, parseErr := strconv.ParseFloat(value, 64)
		if parseErr != nil {
			continue
		}
		if family, ok := strings.CutPrefix(name, "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"); ok {
			queued[family] = at
		} else if family, ok := strings.CutPrefix(name, "kubeproxy_sync_proxy_rules_last_timestamp_seconds"); ok && at > 0 {
			programmed[family] = at
		}
	}
	return queued, programmed, err
}
