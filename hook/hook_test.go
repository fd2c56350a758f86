package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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
	"k8s.io/client-go/tools/record"
)

const waitTimeout = time.Minute

const class = "example.lan/test"

// rig is a hook at work, fed by hand in the place of watches.
type rig struct {
	*hook
	t      *testing.T
	client *fake.Clientset
	events *record.FakeRecorder
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRig runs a hook. The objects are there when it starts.
func newRig(t *testing.T, target Target, change func(*Config), objects ...any) *rig {
	t.Helper()
	r := &rig{t: t, client: fake.NewClientset(), events: record.NewFakeRecorder(1000), log: &lockedBuffer{}}
	config := Config{Client: r.client, Selection: Selection{Class: class}, Target: target, Log: slog.New(slog.NewTextHandler(r.log, nil))}
	if change != nil {
		change(&config)
	}
	r.hook = newHook(config, r.events)
	for _, o := range objects {
		r.set(o)
	}
	for _, part := range []string{"services", "endpointslices", "nodes"} {
		r.collector.complete(part)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (r *rig) set(object any) {
	r.t.Helper()
	switch o := object.(type) {
	case *corev1.Service:
		if _, err := r.client.CoreV1().Services(o.Namespace).Create(context.Background(), o.DeepCopy(), metav1.CreateOptions{}); err != nil && !strings.Contains(err.Error(), "already exists") {
			r.t.Fatal(err)
		}
		r.collector.setService(o)
	case *discoveryv1.EndpointSlice:
		r.collector.setSlice(o)
	case *corev1.Node:
		r.collector.setNode(o)
	}
}

func (r *rig) until(what string, is func() bool) {
	r.t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if is() {
			break
		}
		if late {
			r.t.Fatalf("never: %s\n%s", what, r.log)
		}
	}
}

// hears waits for an Event.
func (r *rig) hears(what string) {
	r.t.Helper()
	for {
		select {
		case e := <-r.events.Events:
			if strings.Contains(e, what) {
				return
			}
		case <-time.After(waitTimeout):
			r.t.Fatalf("no Event %q\n%s", what, r.log)
		}
	}
}

// ingress is what the status of a Service says.
func (r *rig) ingress(name string) string {
	r.t.Helper()
	s, err := r.client.CoreV1().Services("default").Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	var list []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, i.IP+i.Hostname)
	}
	return strings.Join(list, " ")
}

func service(name string, port int32, change ...func(*corev1.Service)) *corev1.Service {
	c := class
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &c,
			Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP}}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// slice has endpoints ADDRESS:PORT, all of one family and port; with ! behind they
// aren't ready, with ~ they drain.
func slice(service string, weight int, endpoints ...string) *discoveryv1.EndpointSlice {
	protocol, family := corev1.ProtocolTCP, discoveryv1.AddressTypeIPv4
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(service, "-", weight), Labels: map[string]string{discoveryv1.LabelServiceName: service},
			Annotations: map[string]string{annotationWeight: fmt.Sprint(weight)}},
	}
	for _, text := range endpoints {
		bare := strings.TrimRight(text, "!~")
		i := strings.LastIndex(bare, ":")
		address := strings.Trim(bare[:i], "[]")
		number, err := strconv.Atoi(bare[i+1:])
		if err != nil {
			panic(err)
		}
		port := int32(number)
		if strings.Contains(address, ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		ready, draining := bare == text, strings.HasSuffix(text, "~")
		s.Ports = []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &draining, Terminating: &draining}})
	}
	s.AddressType = family
	return s
}

// recorder is a target that notes what it gets, and answers as told.
type recorder struct {
	mu     sync.Mutex
	states []*State
	answer func(*State) (*Answer, error)
}

func (r *recorder) String() string { return "recorder" }

func (r *recorder) Deliver(_ context.Context, s *State) (*Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
	if r.answer == nil {
		return &Answer{}, nil
	}
	return r.answer(s)
}

func (r *recorder) last() *State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.states) == 0 {
		return &State{}
	}
	return r.states[len(r.states)-1]
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.states)
}

func texts(list []Change) string {
	var lines []string
	for _, c := range list {
		line := c.What + " " + c.Kind + " " + c.Service + c.Node
		if c.Endpoint != nil {
			line += " " + c.Endpoint.Address
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

// TestStateAndChanges: the first state is whole, the next say what changed; what
// comes together is one state, and what changes nothing is none.
func TestStateAndChanges(t *testing.T) {
	target := &recorder{}
	other := service("other", 81, func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil })
	r := newRig(t, target, nil, service("web", 80), other, slice("web", 1, "10.0.0.1:8080"), slice("other", 1, "10.0.0.9:1"))
	r.until("the first state", func() bool { return target.count() == 1 })
	first := target.last()
	if !first.Full || len(first.Services) != 1 || len(first.Changes) != 0 || first.Services[0].Ports[0].Endpoints[0].Address != "10.0.0.1" {
		t.Errorf("first state: %+v", first)
	}
	r.set(slice("web", 1, "10.0.0.1:8080", "10.0.0.2:8080"))
	r.set(service("shop", 82))
	r.set(slice("other", 1, "10.0.0.9:2"))
	r.until("the second state", func() bool {
		return len(target.last().Services) == 2 && len(target.last().Services[1].Ports[0].Endpoints) == 2
	})
	if target.last().Generation <= first.Generation {
		t.Errorf("generations %d, %d", first.Generation, target.last().Generation)
	}
	if got := texts(target.last().Changes); target.count() == 2 && got != "added service default/shop, added endpoint default/web 10.0.0.2" {
		t.Errorf("changes: %s", got)
	}
	before := target.count()
	r.set(slice("web", 1, "10.0.0.1:8080", "10.0.0.2:8080")) // the same again
	r.set(slice("web", 1, "10.0.0.1:8080~", "10.0.0.2:8080"))
	r.collector.deleteService(types.NamespacedName{Namespace: "default", Name: "shop"})
	r.until("the last state", func() bool {
		return len(target.last().Services) == 1 && target.last().Services[0].Ports[0].Endpoints[0].Draining
	})
	if got := texts(target.last().Changes); target.count() == before+1 && got != "removed service default/shop, changed endpoint default/web 10.0.0.1" {
		t.Errorf("changes: %s", got)
	}
}

// TestRetries: what fails is delivered again, with all changes since; it is said
// once in the log and in an Event.
func TestRetries(t *testing.T) {
	target := &recorder{}
	failures := 2
	target.answer = func(*State) (*Answer, error) {
		if failures--; failures >= 0 {
			return nil, errors.New("no\nway")
		}
		return &Answer{}, nil
	}
	r := newRig(t, target, nil, service("web", 80))
	r.hears("HookFailed recorder: no")
	r.until("it works", func() bool { return strings.Contains(r.log.String(), "the target accepted the state") })
	if n := strings.Count(r.log.String(), "trying again"); n != 1 || target.count() != 3 {
		t.Errorf("said %d times in %d attempts:\n%s", n, target.count(), r.log)
	}
}

// TestAnswers: addresses reach the status, failures of one Service an Event, and
// nonsense nothing; the rest goes on.
func TestAnswers(t *testing.T) {
	target := &recorder{}
	refused := true
	target.answer = func(s *State) (*Answer, error) {
		a := parseAnswer([]byte(`{"services": {
			"default/web": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "web.example.org"}]},
			"default/odd": {"ingress": [{"ip": "127.0.0.300"}]},
			"default/nobody": {"ingress": []},
			"default/warned": {"warning": "no UDP", "ingress": [{"ip": "fd00::1"}]},
			"default/refused": {"error": "no room"}}}`))
		if !refused {
			a.Services["default/refused"] = ServiceAnswer{Ingress: &[]Ingress{{IP: "192.0.2.2"}}}
		}
		refused = false
		return a, nil
	}
	r := newRig(t, target, nil, service("web", 80), service("odd", 81), service("refused", 82), service("warned", 83))
	r.until("addresses", func() bool {
		return r.ingress("web") == "192.0.2.1 web.example.org" && r.ingress("refused") == "192.0.2.2" && r.ingress("warned") == "fd00::1"
	})
	if r.ingress("odd") != "" {
		t.Errorf("odd has %s", r.ingress("odd"))
	}
	for _, want := range []string{"doesn't manage", "127.0.0.300", "no room", "no UDP"} {
		r.until(want, func() bool { return strings.Contains(r.log.String(), want) })
	}
}

// TestOthersStatus: the status of Services that this hook isn't the balancer of
// stays as it is.
func TestOthersStatus(t *testing.T) {
	target := &recorder{answer: func(*State) (*Answer, error) {
		return parseAnswer([]byte(`{"services": {"default/web": {"ingress": [{"ip": "192.0.2.1"}]}}}`)), nil
	}}
	r := newRig(t, target, func(c *Config) { c.Selection = Selection{LoadBalancers: true} }, service("web", 80))
	r.hears("not the balancer of this Service's class")
	if got := r.ingress("web"); got != "" {
		t.Errorf("status: %s", got)
	}
}

func TestChangedOnly(t *testing.T) {
	target := &recorder{}
	r := newRig(t, target, func(c *Config) { c.ChangedOnly = true }, service("a", 80), service("b", 81))
	r.until("the first state", func() bool { return target.count() == 1 })
	r.set(slice("b", 1, "10.0.0.1:80"))
	r.until("a change", func() bool { return target.count() == 2 })
	if s := target.last(); s.Full || len(s.Services) != 1 || s.Services[0].Name != "b" {
		t.Errorf("state %+v", s)
	}
}

// FuzzAnswer gives the parser whatever a program may print.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"services": {"default/web": {"ingress": [{"ip": "192.0.2.1"}]}}}`))
	f.Add([]byte("done\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range parseAnswer(data).Services {
			if s.Ingress == nil {
				continue
			}
			list, err := s.status()
			for _, i := range list {
				if err != nil || (i.IP == "") == (i.Hostname == "") {
					t.Errorf("%+v, %v", list, err)
				}
			}
		}
	})
}

// TestManyServices: a change among ten thousand Services is one of one Service.
func TestManyServices(t *testing.T) {
	target := &recorder{}
	var objects []any
	r := newRig(t, target, func(c *Config) { c.ChangedOnly = true }, objects...)
	for i := range 10_000 {
		name := fmt.Sprint("s", i)
		r.collector.setSlice(slice(name, 1, "10.0.0.1:80", "10.0.0.2:80"))
		r.collector.setService(service(name, 80))
	}
	count := func() (n int) {
		target.mu.Lock()
		defer target.mu.Unlock()
		for _, s := range target.states {
			n += len(s.Services)
		}
		return n
	}
	r.until("all are known", func() bool { return count() >= 10_000 })
	r.set(slice("s77", 1, "10.0.0.1:80", "10.0.0.3:80"))
	r.until("the change", func() bool {
		return texts(target.last().Changes) == "removed endpoint default/s77 10.0.0.2, added endpoint default/s77 10.0.0.3"
	})
}
