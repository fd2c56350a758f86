package check

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

var web = types.NamespacedName{Namespace: "default", Name: "web"}

// rig is the checker of node "a" (10.77.0.1 and fd00::1, with a bridge at
// 172.17.0.1) beside node "b", without its watches.
type rig struct {
	*Checker
	t      *testing.T
	client *fake.Clientset
	told   []string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, client: fake.NewClientset()}
	r.Checker = NewChecker(Config{
		Client: r.client, Node: "a", Log: slog.New(slog.DiscardHandler),
		Addresses: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("172.17.0.1"), netip.MustParseAddr("fd00::1")}, nil
		},
		Tell: func(service types.NamespacedName, message string) { r.told = append(r.told, service.Name+": "+message) },
	})
	r.input.setNode(Node{Name: "a", Ready: true, Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd00::1")}})
	r.input.setNode(Node{Name: "b", Ready: true, Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.2")}})
	for _, part := range []string{partServices, partSlices, partNodes, partReports} {
		r.Synced(part)
	}
	return r
}

func (r *rig) service(annotations ...string) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name, Annotations: map[string]string{}}}
	for _, a := range annotations {
		name, value, _ := strings.Cut(a, "=")
		s.Annotations[AnnotationCheck+name] = value
	}
	r.SetService(s)
}

func (r *rig) slice(pod bool, addresses ...string) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: fmt.Sprint("web-", addresses[0], pod), Labels: map[string]string{discoveryv1.LabelServiceName: web.Name}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To[int32](8000)}},
	}
	for _, a := range addresses {
		e := discoveryv1.Endpoint{Addresses: []string{a}}
		if pod {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p"}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	r.SetSlice(s)
}

func (r *rig) sync() {
	r.t.Helper()
	if err := r.Checker.sync(r.t.Context(), web); err != nil {
		r.t.Fatal(err)
	}
}

// reported is what this node's reports say.
func (r *rig) reported() map[string]Health {
	r.t.Helper()
	list, err := r.client.DiscoveryV1().EndpointSlices("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	found := map[string]Health{}
	for i := range list.Items {
		for _, f := range Findings(&list.Items[i]) {
			found[f.Addr.String()] = f.Health
		}
	}
	return found
}

func (r *rig) planned() (list []string) {
	for addr := range r.Checker.planned[web] {
		list = append(list, addr.String())
	}
	return list
}

// TestWhatIsChecked: this node checks endpoints that no node is named for, as two
// nodes share them; not those that name another node, of pods, nor what only it can reach.
func TestWhatIsChecked(t *testing.T) {
	r := newRig(t)
	r.service("=tcp")
	r.slice(false, "10.77.0.1", "10.77.0.2", "192.0.2.9", "172.17.0.1", "127.0.0.1")
	r.slice(false, "fd00::1", "fe80::1")
	r.slice(true, "10.244.0.7")
	r.sync()
	r.SetSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "web-b", Labels: map[string]string{discoveryv1.LabelServiceName: web.Name}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To[int32](8000)}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.77.0.22"}, NodeName: ptr.To("b")}},
	})
	r.sync()
	if got := r.planned(); len(got) != 4 {
		t.Errorf("checks %v, want 10.77.0.1, 10.77.0.2, 192.0.2.9 and fd00::1", got)
	}
	all := strings.Join(r.told, "\n")
	for _, want := range []string{"172.17.0.1", "127.0.0.1", "fe80::1"} {
		if !strings.Contains(all, want) {
			t.Errorf("nobody is told of %s: %s", want, all)
		}
	}
	told := len(r.told)
	if r.sync(); len(r.told) != told {
		t.Errorf("told again: %v", r.told[told:])
	}
}

// TestNewNode: nobody is told of an address that the Node object doesn't name yet,
// since it names none; and it isn't checked before it does.
func TestNewNode(t *testing.T) {
	r := newRig(t)
	r.input.setNode(Node{Name: "a", Ready: true})
	r.service("=tcp")
	r.slice(false, "10.77.0.1")
	r.sync()
	if got := r.planned(); len(got)+len(r.told) > 0 {
		t.Errorf("checks %v, told %v", got, r.told)
	}
	r.input.setNode(Node{Name: "a", Ready: true, Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.1")}})
	r.sync()
	if got := r.planned(); len(got) != 1 {
		t.Errorf("checks %v", got)
	}
}

// TestReports: verdicts are written, once, and go with the wish; an agent that
// starts begins where the one before it ended.
func TestReports(t *testing.T) {
	r := newRig(t)
	r.service("=tcp")
	r.slice(false, "10.77.0.1", "192.0.2.9")
	r.sync()
	if got := r.reported(); len(got) != 0 {
		t.Errorf("reported before anything is known: %v", got)
	}
	own := netip.MustParseAddrPort("10.77.0.1:8000")
	r.found(Endpoint{Service: web, Addr: own}, Verdict{Health: Unhealthy, Reason: "connection refused"})
	r.sync()
	if got := r.reported(); len(got) != 1 || got[own.String()] != Unhealthy {
		t.Errorf("reported %v", got)
	}
	writes := len(r.client.Actions())
	r.sync()
	for _, a := range r.client.Actions()[writes:] {
		if a.GetVerb() != "list" {
			t.Errorf("nothing changed, and the API is asked to %s", a.GetVerb())
		}
	}

	next := newRig(t)
	next.client, next.config.Client = r.client, r.client
	for _, report := range r.input.reports[web] {
		next.input.setReport(report)
	}
	next.service("=tcp")
	next.slice(false, "10.77.0.1")
	next.sync()
	if got := next.reported(); got[own.String()] != Unhealthy {
		t.Errorf("an agent that starts forgets: %v", got)
	}
	next.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}})
	next.sync()
	if got := next.reported(); len(got) != 0 || len(next.planned()) != 0 {
		t.Errorf("nobody asks for checks any more: %v", got)
	}
}

// TestBadAnnotations: each is named, and a check that can't be read isn't run.
func TestBadAnnotations(t *testing.T) {
	r := newRig(t)
	r.slice(false, "10.77.0.1")
	r.service("=tcp", "-interval=soon", "-port=none")
	r.sync()
	if all := strings.Join(r.told, "\n"); !strings.Contains(all, "health-check-interval") || !strings.Contains(all, `"none"`) {
		t.Errorf("told: %s", all)
	}
	r.service("=exec:/bin/sh")
	r.sync()
	if len(r.planned()) != 0 || !strings.Contains(strings.Join(r.told, "\n"), "exec:/bin/sh") {
		t.Errorf("checks %v, told %v", r.planned(), r.told)
	}
}
