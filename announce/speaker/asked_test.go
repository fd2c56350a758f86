package speaker

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/announce/l2"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// askedLinks are links that note what they are to ask for.
type askedLinks struct{ asked []string }

func (l *askedLinks) OwnAddresses(bool)                   {}
func (l *askedLinks) StandBy(map[netip.Addr]l2.Placement) {}

func (l *askedLinks) Expect(coming map[netip.Addr]l2.Placement) {
	for _, a := range slices.SortedFunc(maps.Keys(coming), netip.Addr.Compare) {
		l.asked = append(l.asked, a.String())
	}
}

func (l *askedLinks) Set(map[netip.Addr]l2.Placement, map[netip.Addr]bool) {}
func (l *askedLinks) Status() []l2.Status                                  { return nil }
func (l *askedLinks) Kept() (map[netip.Addr]int, int)                      { return nil, 0 }
func (l *askedLinks) Counts() *l2.Counts                                   { return nil }

// TestAskedFor: the links are asked for the addresses that a new Service wants, before it has
// them: for those that this node would announce.
func TestAskedFor(t *testing.T) {
	balanced4 := balanced(1, "192.0.2.1")
	for name, test := range map[string]struct {
		wants  string
		change func(*Speaker, *corev1.Service)
		want   []string
	}{
		"both families": {wants: "192.0.2.7,2001:db8::7", want: []string{"192.0.2.7", "2001:db8::7"}},
		"of no pool":    {wants: "198.51.100.1"},
		"none":          {},
		"no address":    {wants: "gateway"},
		"in force":      {wants: "192.0.2.1"},
		"it has one": {wants: "192.0.2.7", change: func(_ *Speaker, s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.8"}}
		}},
		"of another type": {wants: "192.0.2.7", change: func(_ *Speaker, s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{"203.0.113.1"}
		}},
		"by routers only": {wants: "192.0.2.7", change: func(n *Speaker, _ *corev1.Service) { clear(n.objects.L2Advertisements) }},
		"unfit node":      {wants: "192.0.2.7", change: func(n *Speaker, _ *corev1.Service) { n.self.Unfit = "it is drained" }},
	} {
		t.Run(name, func(t *testing.T) {
			n, links := announcingTo(t, &notebook{}), &askedLinks{}
			n.objects.L2Advertisements["ad"] = &v1beta1.L2Advertisement{ObjectMeta: metav1.ObjectMeta{Name: "ad"}}
			n.Intend(balanced4)
			n.Applied(balanced4, nil)
			n.layer2 = links
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "new", Annotations: map[string]string{v1beta1.AnnotationLoadBalancerIPs: test.wants}}}
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			if test.change != nil {
				test.change(n, s)
			}
			n.SetService(s)
			if !slices.Equal(links.asked, test.want) {
				t.Errorf("asked for %q, want %q", links.asked, test.want)
			}
		})
	}
}
