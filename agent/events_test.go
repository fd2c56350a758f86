package agent

import (
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestLacksAreToldOnce: the author of a Service hears of what a mode lacks when
// the Service first asks for it, and not again with every sync.
func TestLacksAreToldOnce(t *testing.T) {
	e := newEvents(fake.NewClientset(), "node", slog.New(slog.DiscardHandler))
	lacks := []kernel.Unsupported{{Feature: kernel.Scheduling, Value: "mh", Why: "no consistent hash"}}
	id := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	table := func(last *model.Table, s model.Scheduler, port uint16) *model.Table {
		edit := last.Edit()
		edit.SetPool(&model.Pool{ID: id, Scheduler: s, Backends: []model.Backend{{Addr: netip.MustParseAddr("10.244.1.2"), Port: port, Weight: 1}}})
		return edit.Table()
	}
	first := table(model.NewTable(), model.MaglevHashing, 80)
	e.unsupported(first, lacks)
	second := table(first, model.MaglevHashing, 81) // another endpoint, the same wish
	e.unsupported(second, lacks)
	third := table(second, model.RoundRobin, 81)
	e.unsupported(third, lacks)
	if len(e.queue) != 1 {
		t.Fatalf("%d Events, want one", len(e.queue))
	}
	if n := <-e.queue; n.service.String() != "default/web" || n.reason != reasonUnsupported {
		t.Errorf("told %+v", n)
	}
	e.unsupported(table(third, model.MaglevHashing, 81), lacks)
	if len(e.queue) != 1 {
		t.Errorf("asked for again: %d Events, want one", len(e.queue))
	}
}

// TestNodesAgreeOnOneEvent: however many nodes find the same, the Service gets
// one Event.
func TestNodesAgreeOnOneEvent(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	client := fake.NewClientset(service)
	for _, node := range []string{"node1", "node2", "node3"} {
		e := newEvents(client, node, slog.New(slog.DiscardHandler))
		if err := e.write(t.Context(), notice{service: serviceOf("default/web:http"), reason: reasonUnsupported, message: "scheduler mh: none here"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].InvolvedObject.UID != "1" || list.Items[0].Reason != reasonUnsupported {
		t.Errorf("Events: %+v", list.Items)
	}
}

// TestLackOfDirectReturn is told when a Service that is there already asks for it.
func TestLackOfDirectReturn(t *testing.T) {
	e := newEvents(fake.NewClientset(), "node", slog.New(slog.DiscardHandler))
	lacks := []kernel.Unsupported{{Feature: kernel.DirectReturn, Why: "it masquerades"}}
	table := func(last *model.Table, direct bool) *model.Table {
		f := &model.Frontend{Key: model.Key{Addr: netip.MustParseAddr("192.0.2.1"), Port: 30080, Proto: model.TCP}, Name: "default/web:http"}
		f.Routes[model.FromOutside] = model.Route{Masquerade: true, Direct: direct}
		edit := last.Edit()
		edit.SetFrontend(f)
		return edit.Table()
	}
	plain := table(model.NewTable(), false)
	e.unsupported(plain, lacks)
	if len(e.queue) != 0 {
		t.Fatalf("%d Events before anybody asks", len(e.queue))
	}
	asked := table(plain, true)
	e.unsupported(asked, lacks)
	e.unsupported(table(asked, true), lacks)
	if len(e.queue) != 1 {
		t.Errorf("%d Events, want one", len(e.queue))
	}
}
