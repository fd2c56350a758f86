package addresses

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses/allocator"
	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/iprange"
)

// TestEventsOutlastFaults: what becomes of addresses is told once, whether a write
// isn't done or its answer is lost.
func TestEventsOutlastFaults(t *testing.T) {
	before := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{v1beta1.AnnotationFromPool: "old"}},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}
	lost := errors.New("no pool has 192.0.2.1")
	tests := map[string]struct {
		sync func(c *Controller, s *corev1.Service) error
		want []string
	}{
		"taken": {
			func(c *Controller, s *corev1.Service) error {
				return c.fail(t.Context(), s, lost, errors.New("there are no pools"))
			},
			[]string{"ClearAssignment Cleared [192.0.2.1]: no pool has", "AllocationFailed Failed to allocate"},
		},
		"another": {
			func(c *Controller, s *corev1.Service) error {
				return c.write(t.Context(), s, allocator.Assignment{Pool: "new", Addresses: addrs("192.0.2.9")}, lost)
			},
			[]string{"ClearAssignment Cleared [192.0.2.1]: no pool has", "IPAllocated Assigned IP [192.0.2.9] from pool new"},
		},
	}
	for name, test := range tests {
		for fault, done := range map[string]bool{"not sent": false, "answer lost": true} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				client := fake.NewClientset(before.DeepCopy())
				failFirstPatch(client, done)
				recorder := record.NewFakeRecorder(10)
				c := &Controller{
					cluster: &cluster.Cache{Client: client}, recorder: recorder,
					waiting: map[types.NamespacedName]string{}, untold: map[types.NamespacedName]change{},
				}
				get := func() *corev1.Service {
					s, err := client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				if err := test.sync(c, get()); err == nil {
					t.Fatal("the fault is not told")
				}
				for range 2 {
					if err := test.sync(c, get()); err != nil {
						t.Fatal(err)
					}
				}
				close(recorder.Events)
				var got []string
				for e := range recorder.Events {
					if !strings.Contains(e, reasonInvalid) {
						got = append(got, e)
					}
				}
				if !slices.EqualFunc(got, test.want, func(e, want string) bool { return strings.Contains(e, want) }) {
					t.Errorf("Events: %q, expected %q", got, test.want)
				}
			})
		}
	}
}

// failFirstPatch makes the first patch fail, of which the other reactors have heard if
// it is done.
func failFirstPatch(client *fake.Clientset, done bool) {
	failed := false
	others := slices.Clone(client.ReactionChain)
	client.PrependReactor("patch", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if failed {
			return false, nil, nil
		}
		failed = true
		if done {
			for _, r := range others {
				if r.Handles(action) {
					if handled, _, err := r.React(action); handled && err != nil {
						return true, nil, err
					}
				}
			}
		}
		return true, nil, errors.New("connection reset by peer")
	})
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// TestFreedOnceWritten: a Service whose status can't be written keeps others from the address that
// it is to have no more. Who waits for it is looked at once it is written.
func TestFreedOnceWritten(t *testing.T) {
	service := func(name, wants, has string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}}}
		s.Spec.Type, s.Spec.IPFamilies = corev1.ServiceTypeLoadBalancer, []corev1.IPFamily{corev1.IPv4Protocol}
		if wants != "" {
			s.Annotations[v1beta1.AnnotationLoadBalancerIPs] = wants
		}
		if has != "" {
			s.Annotations[v1beta1.AnnotationFromPool] = "p"
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: has}}
		}
		return s
	}
	moves, waits := service("moves", "192.0.2.1", "192.0.2.0"), service("waits", "192.0.2.0", "")
	client := fake.NewClientset(moves, waits)
	failFirstPatch(client, false) // before anything reads it
	c, err := cluster.New(client)
	if err != nil {
		t.Fatal(err)
	}
	controller, err := New(c, nil, record.NewFakeRecorder(20), Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := iprange.Parse("192.0.2.0/31")
	if err != nil {
		t.Fatal(err)
	}
	controller.allocator.SetPools([]allocator.Pool{{Name: "p", Ranges: []iprange.Range{r}, AutoAssign: true}})
	controller.allocator.Adopt(allocator.Request{
		Service: types.NamespacedName{Namespace: "default", Name: "moves"}, Families: []allocator.Family{allocator.IPv4},
	}, addrs("192.0.2.0"))
	has := func(name string) string {
		s, err := client.CoreV1().Services("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(texts(assigned(s)), " ")
	}
	sync := func(name string, wantErr bool) {
		t.Helper()
		if err := controller.sync(ctx, types.NamespacedName{Namespace: "default", Name: name}); (err != nil) != wantErr {
			t.Fatalf("%s: %v", name, err)
		}
	}
	sync("moves", true)
	sync("waits", false)
	if got := has("waits"); got != "" {
		t.Errorf("it has %s, and so has another one", got)
	}
	sync("moves", false)
	sync("waits", false)
	if a, b := has("moves"), has("waits"); a != "192.0.2.1" || b != "192.0.2.0" {
		t.Errorf("they have %q and %q", a, b)
	}
}

func texts(list []netip.Addr) (texts []string) {
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}
