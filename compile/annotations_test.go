package compile

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairway-net/fairway/model"
)

// FuzzAnnotations: whatever annotations say, the table is valid, and what isn't
// understood is a problem instead of a guess.
func FuzzAnnotations(f *testing.F) {
	f.Add("rr", "10.244.1.1=3,pod-1=2", "deadline=30s", "5", "10.0.0.0/8", "true")
	f.Add("", "=", "deadline=-1s", "256", ",", "false")
	f.Add("RR", "a=0,a=100,a=101", "deadline=99999999999h", "-0", "::/0, 0.0.0.0/0", "")
	f.Fuzz(func(t *testing.T, scheduler, weights, orphans, weight, ranges, stable string) {
		s, slice := bigService(1)
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
		s.Annotations = map[string]string{
			AnnotationScheduler: scheduler, AnnotationWeights: weights, AnnotationOrphans: orphans,
			corev1.AnnotationLoadBalancerSourceRangesKey: ranges, AnnotationStableFlows: stable,
		}
		slice.Annotations = map[string]string{AnnotationWeight: weight}
		c := New(testConfig)
		c.SetNode(testNode)
		c.SetService(s)
		c.SetSlice(slice)
		table := c.Table()
		if err := table.Validate(); err != nil {
			t.Fatal(err)
		}
		for p := range table.Pools() {
			if p.Orphans == model.OrphansDeadline && (p.OrphanDeadline <= 0 || p.OrphanDeadline > 24*time.Hour) {
				t.Errorf("deadline %s", p.OrphanDeadline)
			}
			if p.Scheduler == model.DefaultScheduler && len(c.Problems()) == 0 {
				t.Errorf("scheduler %q is neither taken nor reported", scheduler)
			}
			if got := len(p.Backends) + len(p.Draining); got != len(slice.Endpoints) {
				t.Errorf("%d endpoints of %d", got, len(slice.Endpoints))
			}
		}
	})
}

// TestWeightOfZeroDrains: such an endpoint takes no new connections, and the
// others aren't kept from standing in by it.
func TestWeightOfZeroDrains(t *testing.T) {
	s, slice := bigService(1)
	s.Annotations = map[string]string{AnnotationWeights: slice.Endpoints[0].Addresses[0] + "=0"}
	slice.Endpoints = slice.Endpoints[:2]
	slice.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Terminating: ptr(true)}
	table := All(testConfig, testNode, []*corev1.Service{s}, []*discoveryv1.EndpointSlice{slice})
	for p := range table.Pools() {
		if len(p.Backends) != 1 || p.Backends[0].Addr.String() != slice.Endpoints[1].Addresses[0] || len(p.Draining) != 1 {
			t.Errorf("pool %s: %v take connections, %v drain", p.ID, p.Backends, p.Draining)
		}
	}
}

// TestProblemsAreToldOnce: a problem is new when it arises, and again only after
// it was gone.
func TestProblemsAreToldOnce(t *testing.T) {
	c := New(testConfig)
	s, slice := bigService(1)
	tell := func(scheduler string, want int) {
		t.Helper()
		s.Annotations = map[string]string{AnnotationScheduler: scheduler}
		c.SetService(s)
		c.SetSlice(slice)
		c.Table()
		if got := c.NewProblems(); len(got) != want {
			t.Errorf("scheduler %q: new problems %v, want %d", scheduler, got, want)
		}
	}
	tell("fastest", 1)
	tell("fastest", 0)
	tell("rr", 0)
	tell("fastest", 1)
	tell("slowest", 1)
}

func TestParseNodePortAddresses(t *testing.T) {
	for _, good := range [][]string{nil, {"primary"}, {"192.0.2.0/24", " 2001:db8::/32"}, {"primary", "192.0.2.0/24"}, {"localhost", "all"}} {
		if _, err := ParseNodePortAddresses(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range [][]string{{"192.0.2.1"}, {"everywhere"}, {""}} {
		if a, err := ParseNodePortAddresses(bad); err == nil {
			t.Errorf("%q: read as %v", bad, a)
		}
	}
}
