package flows

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/flow"
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
	empty := model.PoolID{Name: "default/none:http", Proto: model.TCP}
	edit.SetPool(&model.Pool{ID: empty})
	edit.SetFrontend(&model.Frontend{
		Key: model.Key{Addr: netip.MustParseAddr("10.96.0.11"), Port: 80, Proto: model.TCP}, Name: empty.Name,
		Routes: [model.NumOrigins]model.Route{{Pool: empty}, {Pool: empty}, {Pool: empty}},
	})
	edit.SetSettings(&model.Settings{Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}})
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
		replied                   bool
		kind                      flow.Kind
		want                      string // "" if it is no Service's
	}{
		{"192.0.2.1:1", "10.96.0.10:80", "10.244.1.2:8080", false, flow.Began, "n1 192.0.2.1:1 | default/web-1 10.244.1.2:8080 | forwarded"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.244.1.2:8080", true, flow.Open, "192.0.2.9:1 | default/web-1 10.244.1.2:8080 | answered"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.244.1.2:8080", true, flow.Ended, "192.0.2.9:1 | default/web-1 10.244.1.2:8080 | ended | 7/8 | 1.2s"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.244.1.2:8080", false, flow.Ended, "192.0.2.9:1 | default/web-1 10.244.1.2:8080 | unanswered"},
		{"192.0.2.9:1", "10.96.0.10:80", "10.96.0.10:80", false, flow.Began, "192.0.2.9:1 | - | untranslated"},
		{"[fd00:244::2]:1", "[fd00:96::10]:80", "[fd00:244::2]:8080", true, flow.Open, "default/web-1 [fd00:244::2]:1 | default/web-1 [fd00:244::2]:8080 | answered"},
		{"192.0.2.9:1", "10.96.0.11:80", "", false, flow.Dropped, "192.0.2.9:1 | - | refused: the Service port has no endpoint to use"},
		{"192.0.2.9:1", "10.96.0.10:80", "", false, flow.Dropped, "192.0.2.9:1 | - | dropped"},
		{"192.0.2.9:1", "10.96.0.10:81", "", false, flow.Dropped, "no Service 10.96.0.10:81/tcp | - | refused: nothing serves this port of a Service address"},
		{"192.0.2.9:1", "10.96.0.10:81", "10.244.1.2:8080", false, flow.Began, ""},
		{"192.0.2.9:1", "203.0.113.1:81", "", false, flow.Dropped, ""},
	} {
		e := flow.Event{
			Kind: c.kind, Proto: model.TCP, Client: netip.MustParseAddrPort(c.client), Frontend: netip.MustParseAddrPort(c.frontend),
			Replied: c.replied,
		}
		if c.backend != "" {
			e.Backend = netip.MustParseAddrPort(c.backend)
		}
		if c.kind == flow.Ended {
			e.Counted, e.In, e.Out, e.Took = true, 7, 8, 1200*time.Millisecond
		}
		r, ok := Of("n1", edit.Table(), names, e)
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
		if !(Filter{strings.TrimSuffix(r.Service, ":http"), string(r.Verdict)}).Wants(r) || (Filter{"default/we", ""}).Wants(r) || (Filter{"", "lost"}).Wants(r) {
			t.Errorf("%q is filtered wrongly", r)
		}
	}
}
