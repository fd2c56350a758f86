package flows

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
)

// TestRecords names flows of both families and judges them; what is no Service's is
// left out.
func TestRecords(t *testing.T) {
	id := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	edit := model.NewTable().Edit()
	edit.SetPool(&model.Pool{ID: id, Backends: []model.Backend{
		{Addr: netip.MustParseAddr("10.244.1.2"), Port: 8080, Weight: 1},
	}})
	for _, a := range []string{"10.96.0.10", "fd00:96::10"} {
		edit.SetFrontend(&model.Frontend{
			Key: model.Key{Addr: netip.MustParseAddr(a), Port: 80, Proto: model.TCP}, Name: id.Name,
			Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}},
		})
	}
	pod := func(name, v4, v6 string, hosted bool) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{HostNetwork: hosted},
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: v4}, {IP: v6}}},
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Address: "192.0.2.1"}}}}
	names := NamesOf(&explain.Objects{
		Pods:  []*corev1.Pod{pod("web-1", "10.244.1.2", "fd00:244::2", false), pod("hosted", "192.0.2.1", "", true)},
		Nodes: []*corev1.Node{node},
	})
	for _, c := range []struct {
		client, frontend, backend string
		replied, ended            bool
		want                      string // "" if it is no Service's
	}{
		{"192.0.2.1:1", "10.96.0.10:80", "10.244.1.2:8080", false, false, "n1 192.0.2.1:1 | default/web-1 10.244.1.2:8080 | forwarded"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.244.1.2:8080", true, false, "192.0.2.9:1 | default/web-1 10.244.1.2:8080 | answered"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.244.1.2:8080", true, true, "192.0.2.9:1 | default/web-1 10.244.1.2:8080 | ended"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.244.1.2:8080", false, true, "192.0.2.9:1 | default/web-1 10.244.1.2:8080 | unanswered"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.96.0.10:80", false, false, "192.0.2.9:1 | - | untranslated"},
		{"[fd00:244::2]:1", "[fd00:96::10]:80", "[fd00:244::2]:8080", true, false, "default/web-1 [fd00:244::2]:1 | default/web-1 [fd00:244::2]:8080 | answered"},
		{"192.0.2.9:1", "10.96.0.10:81", "10.244.1.2:8080", false, false, ""},
	} {
		f := &conntrack.Flow{
			Proto: model.TCP, Client: netip.MustParseAddrPort(c.client), Frontend: netip.MustParseAddrPort(c.frontend),
			Backend: netip.MustParseAddrPort(c.backend), Replied: c.replied,
		}
		r, ok := Of("n1", edit.Table(), names, f, c.ended)
		if ok != (c.want != "") {
			t.Errorf("%+v: a Service's: %t", c, ok)
		}
		if !ok {
			continue
		}
		for _, part := range strings.Split(c.want, " | ") {
			if !strings.Contains(r.String(), "  "+part) {
				t.Errorf("%q lacks %q", r, part)
			}
		}
		if !(Filter{"default/web", string(r.Verdict)}).Wants(r) || (Filter{"default/we", ""}).Wants(r) || (Filter{"", "lost"}).Wants(r) {
			t.Errorf("%q is filtered wrongly", r)
		}
	}
}
