package publish

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/endpoint/check"
)

const waitTimeout = time.Minute

// rig is a machine "a" with a publisher that runs. Its checks ask the loopback
// address, whatever address is published: files are the machine's own word.
type rig struct {
	*Publisher
	t      *testing.T
	client *fake.Clientset
	folder string
	mu     sync.Mutex
	told   []string
}

func newRig(t *testing.T, services ...*corev1.Service) *rig {
	r := &rig{t: t, client: fake.NewClientset(), folder: t.TempDir()}
	r.Publisher = New(Config{
		Client: r.client, Node: "a", Folder: r.folder, DrainTime: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Tell: func(service types.NamespacedName, _, reason, message string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, service.Name+": "+reason+": "+message)
		},
	})
	r.checks = check.NewScheduler(func(ctx context.Context, t check.Target) (check.Result, error) {
		t.Addr = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), t.Addr.Port())
		return check.Probe(ctx, t)
	}, r.found)
	for _, s := range services {
		r.create(s)
	}
	r.SetNode(node())
	return r
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Labels: map[string]string{corev1.LabelTopologyZone: "north"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.77.0.1"}, {Type: corev1.NodeInternalIP, Address: "fd00::1"},
		}},
	}
}

func (r *rig) run() {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(r.t.Context()) }()
	r.t.Cleanup(func() {
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) create(s *corev1.Service) {
	r.t.Helper()
	if _, err := r.client.CoreV1().Services(s.Namespace).Create(r.t.Context(), s, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.SetService(s)
}

func (r *rig) file(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.folder, name)
	var err error
	if text == "" {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// published are the machine's slices as text: address, port and state.
func (r *rig) published() string {
	r.t.Helper()
	var lines []string
	for _, s := range r.slices() {
		e := s.Endpoints[0]
		state := "down"
		switch {
		case *e.Conditions.Terminating:
			state = "draining"
		case *e.Conditions.Ready:
			state = "ready"
		}
		lines = append(lines, e.Addresses[0]+" "+*s.Ports[0].Name+" "+state)
	}
	return strings.Join(lines, ", ")
}

func (r *rig) slices() []discoveryv1.EndpointSlice {
	r.t.Helper()
	list, err := r.client.DiscoveryV1().EndpointSlices("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

func (r *rig) eventually(want string) {
	r.t.Helper()
	r.until(want, func() bool { return r.published() == want })
}

func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if is() {
			break
		}
		if late {
			r.t.Fatalf("never: %s; published %q, told %q", what, r.published(), r.told)
		}
	}
}

func (r *rig) hears(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.told, "\n"), what)
}

func service(name string, families []corev1.IPFamily, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{check.AnnotationPublishers: "*"}},
		Spec:       corev1.ServiceSpec{IPFamilies: families, Ports: ports},
	}
}

var (
	ipv4 = []corev1.IPFamily{corev1.IPv4Protocol}
	both = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
)

// listen answers at a port of its own until it is closed.
func listen(t *testing.T) (port string, l net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, l
}

// TestLife: a file publishes a process in both families, with zone and weight,
// for as long as it answers; without the file it is drained, then gone.
func TestLife(t *testing.T) {
	port, l := listen(t)
	r := newRig(t, service("web", both, corev1.ServicePort{Port: 80}))
	r.run()
	r.file("web.yaml", "name: web\nport: "+port+"\nweight: 2\nsettings: {interval: 100ms, rise: 1}\ncheck: tcp")
	r.until("both families", func() bool {
		return strings.Contains(r.published(), "10.77.0.1  ready") && strings.Contains(r.published(), "fd00::1  ready")
	})
	for _, s := range r.slices() {
		if *s.Endpoints[0].NodeName != "a" || *s.Endpoints[0].Zone != "north" || s.Annotations["fairway.dev/weight"] != "2" ||
			s.Labels[check.NodeLabel] != "a" || s.OwnerReferences[0].Kind != "Node" || len(s.Endpoints) != 1 {
			t.Errorf("slice %+v", s)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r.until("the process is down", func() bool { return strings.Count(r.published(), "down") == 2 })
	if !r.hears("EndpointUnhealthy") || !strings.Contains(r.slices()[0].Annotations[check.AnnotationReason], "refused") {
		t.Errorf("told %q, slices %v", r.told, r.slices())
	}
	r.file("web.yaml", "")
	r.eventually("")
}

// TestDrained: what answers is drained before it goes, and what is back in time stays.
func TestDrained(t *testing.T) {
	port, _ := listen(t)
	r := newRig(t, service("web", ipv4, corev1.ServicePort{Port: 80}))
	r.config.DrainTime = time.Hour
	r.run()
	text := "name: web\nport: " + port
	r.file("web.yaml", text)
	r.eventually("10.77.0.1  ready")
	r.file("web.yaml", "")
	r.eventually("10.77.0.1  draining")
	if c := r.slices()[0].Endpoints[0].Conditions; *c.Ready || !*c.Serving {
		t.Errorf("conditions while draining: %+v", c)
	}
	r.file("web.yaml", text)
	r.eventually("10.77.0.1  ready")
	r.config.DrainTime = time.Millisecond
	if err := r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.eventually("")
}

// TestPorts: the Service's port is found by number where that leaves no doubt,
// and asked for where it doesn't; problems of one file don't stop the others.
func TestPorts(t *testing.T) {
	one, _ := listen(t)
	two, _ := listen(t)
	r := newRig(t,
		service("web", ipv4, corev1.ServicePort{Name: "http", Port: 80}, corev1.ServicePort{Name: "https", Port: 443}),
		service("pods", ipv4, corev1.ServicePort{Port: 80}), service("six", []corev1.IPFamily{corev1.IPv6Protocol}, corev1.ServicePort{Port: 80}))
	selecting := service("selecting", ipv4, corev1.ServicePort{Port: 80})
	selecting.Spec.Selector = map[string]string{"app": "x"}
	r.create(selecting)
	r.run()
	r.file("a.yaml", "name: web\nport: "+one+"\nportName: http")
	r.file("b.yaml", "name: web\nport: "+two)
	r.file("c.yaml", "name: selecting\nport: "+one)
	r.file("d.yaml", "name: missing\nport: "+one)
	r.file("e.yaml", "name: pods\nport: 53\nprotocol: UDP")
	r.file("f.yaml", "name: six\nport: "+one+"\naddresses: [10.77.0.1]")
	r.file("g.yaml", "name: six\nport: nine")
	r.eventually("10.77.0.1 http ready")
	for _, want := range []string{
		"web: EndpointNotPublished: b.yaml: Service default/web: the Service has several TCP ports: say which with portName: http, https",
		"selecting: EndpointNotPublished: c.yaml", ": EndpointNotPublished: d.yaml: there is no Service default/missing yet",
		"pods: EndpointNotPublished: e.yaml: Service default/pods: the Service has no UDP port", "six: EndpointNotPublished: f.yaml", ": InvalidPublishFile: g.yaml",
	} {
		r.until(want, func() bool { return r.hears(want) })
	}
	r.create(service("missing", ipv4, corev1.ServicePort{Port: 80}))
	r.until("the Service is made", func() bool { return strings.Contains(r.published(), "10.77.0.1  ready") })
}

// TestBrokenFileKeepsItsEndpoint: a file that can't be read any more leaves what it said.
func TestBrokenFileKeepsItsEndpoint(t *testing.T) {
	port, _ := listen(t)
	r := newRig(t, service("web", ipv4, corev1.ServicePort{Port: 80}))
	r.run()
	r.file("web.yaml", "name: web\nport: "+port)
	r.eventually("10.77.0.1  ready")
	r.file("web.yaml", "name: web\nport: x")
	r.until("the file is named", func() bool { return r.hears("InvalidPublishFile: web.yaml") })
	r.eventually("10.77.0.1  ready")
}

// TestUnknownNode: an agent that starts reads its files before it knows its
// Node's addresses. What the one before it published stays, and what nobody
// publishes any more goes once the Node is known.
func TestUnknownNode(t *testing.T) {
	port, _ := listen(t)
	first := newRig(t, service("web", ipv4, corev1.ServicePort{Port: 80}), service("old", ipv4, corev1.ServicePort{Port: 80}))
	first.run()
	first.file("web.yaml", "name: web\nport: "+port)
	first.file("old.yaml", "name: old\nport: "+port)
	first.eventually("10.77.0.1  ready, 10.77.0.1  ready")
	first.Publisher.mu.Lock()
	first.ending = true // it was killed
	first.Publisher.mu.Unlock()

	next := newRig(t)
	next.client, next.config.Client = first.client, first.client
	next.machine = machine{name: "a"}
	next.file("web.yaml", "name: web\nport: "+port)
	next.run()
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: name} }
	next.until("both Services wait for the Node", func() bool {
		next.Publisher.mu.Lock()
		defer next.Publisher.mu.Unlock()
		return next.waiting[key("web")] && next.waiting[key("old")]
	})
	if got := next.published(); got != "10.77.0.1  ready, 10.77.0.1  ready" {
		t.Errorf("before the Node is known: %s", got)
	}
	next.SetNode(node())
	next.until("only web is published", func() bool {
		list := next.slices()
		return len(list) == 1 && list[0].Labels[discoveryv1.LabelServiceName] == "web"
	})
	next.eventually("10.77.0.1  ready")
	if next.hears("EndpointNotPublished") {
		t.Errorf("told %q", next.told)
	}
}

// TestNextAgent: an agent that starts goes on where the one before it ended, and
// removes what nobody publishes any more; a slice that others change is mended.
func TestNextAgent(t *testing.T) {
	port, _ := listen(t)
	first := newRig(t, service("web", ipv4, corev1.ServicePort{Port: 80}), service("old", ipv4, corev1.ServicePort{Port: 80}))
	first.run()
	first.file("old.yaml", "name: old\nport: "+port+"\nportName: \"\"")
	first.eventually("10.77.0.1  ready")

	next := newRig(t)
	next.client, next.config.Client = first.client, first.client
	first.mu.Lock()
	next.file("web.yaml", "name: web\nport: "+port)
	first.mu.Unlock()
	first.Publisher.mu.Lock()
	first.ending = true // it was killed
	first.Publisher.mu.Unlock()
	next.run()
	next.until("only web is published", func() bool {
		list := next.slices()
		return len(list) == 1 && list[0].Labels[discoveryv1.LabelServiceName] == "web"
	})
	s := next.slices()[0]
	no := false
	s.Endpoints[0].Conditions.Ready = &no
	if _, err := next.client.DiscoveryV1().EndpointSlices("default").Update(t.Context(), &s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	next.SetSlice(&s)
	next.eventually("10.77.0.1  ready")
}
