package agent

import (
	"log/slog"
	"net/netip"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/notices"
	"github.com/fairway-net/fairway/model"
)

// TestLacksAreToldOnce: the author of a Service hears of what a mode lacks when
// the Service first asks for it, and not again with every sync.
func TestLacksAreToldOnce(t *testing.T) {
	e := &events{Writer: notices.New(fake.NewClientset(), "node", slog.New(slog.DiscardHandler))}
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
	if told := e.Drain(); len(told) != 1 || told[0].Service.String() != "default/web" || told[0].Reason != reasonUnsupported {
		t.Fatalf("told %+v", told)
	}
	e.unsupported(table(third, model.MaglevHashing, 81), lacks)
	if told := e.Drain(); len(told) != 1 {
		t.Errorf("asked for again: %d Events, want one", len(told))
	}
}

// TestLackOfOrphanReset is told to those who ask for it.
func TestLackOfOrphanReset(t *testing.T) {
	for orphans, want := range map[model.Orphans]int{model.OrphansKeep: 0, model.OrphansReset: 1, model.OrphansDeadline: 1} {
		e := &events{Writer: notices.New(fake.NewClientset(), "node", slog.New(slog.DiscardHandler))}
		edit := model.NewTable().Edit()
		edit.SetPool(&model.Pool{ID: model.PoolID{Name: "default/web:http", Proto: model.TCP}, Orphans: orphans})
		e.unsupported(edit.Table(), []kernel.Unsupported{{Feature: kernel.OrphanReset, Why: "conntrack isn't loose"}})
		if told := e.Drain(); len(told) != want {
			t.Errorf("orphans %d: %d Events, want %d", orphans, len(told), want)
		}
	}
}

// TestLackOfDirectReturn is told when a Service that is there already asks for it.
func TestLackOfDirectReturn(t *testing.T) {
	e := &events{Writer: notices.New(fake.NewClientset(), "node", slog.New(slog.DiscardHandler))}
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
	if told := e.Drain(); len(told) != 0 {
		t.Fatalf("%d Events before anybody asks", len(told))
	}
	asked := table(plain, true)
	e.unsupported(asked, lacks)
	e.unsupported(table(asked, true), lacks)
	if told := e.Drain(); len(told) != 1 {
		t.Errorf("%d Events, want one", len(told))
	}
}
