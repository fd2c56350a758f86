package dump

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// twoServices has default/web, at addresses that those of default/other begin with.
func twoServices() *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{
		Pods:     model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
		Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	})
	for name, ends := range map[string][4]string{
		"default/web:http":   {"10.96.0.1", "10.244.1.1", "fd00:96::1", "fd00:244::1"},
		"default/other:http": {"10.96.0.10", "10.244.1.10", "fd00:96::10", "fd00:244::10"},
	} {
		for i := 0; i < len(ends); i += 2 {
			front, back := netip.MustParseAddr(ends[i]), netip.MustParseAddr(ends[i+1])
			id := model.PoolID{Name: name, Proto: model.TCP, IPv6: front.Is6()}
			e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{{Addr: back, Port: 8080, Weight: 1}}})
			e.SetFrontend(&model.Frontend{Key: model.Key{Addr: front, Port: 80, Proto: model.TCP}, Name: name, Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}}})
		}
	}
	return e.Table()
}

// TestEveryObjectThatIsAltered is found, in every mode and with the Service that it
// is of.
func TestEveryObjectThatIsAltered(t *testing.T) {
	for _, kind := range dataplane.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			table := twoServices()
			render := func(table *model.Table) ([]kernel.Object, error) { return kind.Render(table, kernel.Options{}) }
			have, err := render(table)
			if err != nil {
				t.Fatal(err)
			}
			of := func(service string, have []kernel.Object) *Report {
				t.Helper()
				r, err := Of(table, service, render, have)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			own := map[string]int{}
			for _, service := range []string{"", "default/web", "default/other"} {
				r := of(service, have)
				if d := r.Differences(); len(d) > 0 {
					t.Errorf("%s: differs although nothing was altered: %v", service, d)
				}
				own[service] = len(r.Lines)
			}
			if own["default/web"] == 0 || own["default/web"] != own["default/other"] || own[""] <= own["default/web"] {
				t.Errorf("objects by Service: %v", own)
			}
			for _, line := range of("default/web", have).Lines {
				found := of("default/web", without(have, line)).Differences()
				if len(found) != 1 || found[0].key() != line.key() || found[0].State != Missing {
					t.Errorf("%s was deleted; found: %v", line, found)
				}
				if found := of("default/other", without(have, line)).Differences(); len(found) > 0 {
					t.Errorf("%s was deleted; found for the other Service: %v", line, found)
				}
			}
		})
	}
}

// without returns a copy of the objects that lacks one line, as if it had been deleted in the
// kernel.
func without(objects []kernel.Object, line Line) []kernel.Object {
	list := slices.Clone(objects)
	for i, o := range list {
		texts := strings.Split(o.Text, "\n")
		at := slices.Index(texts, line.Text)
		if o.Kind != line.Kind || o.Name != line.Name || at < 0 {
			continue
		}
		if len(texts) == 1 {
			return slices.Delete(list, i, i+1)
		}
		list[i].Text = strings.Join(slices.Delete(texts, at, at+1), "\n")
		return list
	}
	panic("there is no " + line.String())
}

func TestUnexpected(t *testing.T) {
	table := twoServices()
	render := func(table *model.Table) ([]kernel.Object, error) {
		var list []kernel.Object
		for f := range table.Frontends() {
			list = append(list, kernel.Object{Kind: "element", Name: f.Key.String(), Text: f.Name})
		}
		kernel.SortObjects(list)
		return list, nil
	}
	have, err := render(table)
	if err != nil {
		t.Fatal(err)
	}
	have = append(have, kernel.Object{Kind: "element", Name: "10.96.0.10:81/tcp", Text: "?"})
	for service, want := range map[string]int{"default/web": 0, "default/other": 1, "": 1} {
		r, err := Of(table, service, render, have)
		if err != nil || len(r.Differences()) != want {
			t.Errorf("%s: %v, error %v; want %d", service, r.Differences(), err, want)
		}
	}
	var b strings.Builder
	r, err := Of(table, "default/other", render, have)
	if err != nil {
		t.Fatal(err)
	}
	r.Node, r.Mode = "n1", "nftables"
	if err := r.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `default/other on n1 (nftables)
frontend 10.96.0.10:80/tcp default/other:http (cluster IP)
  all -> default/other:http/tcp
frontend [fd00:96::10]:80/tcp default/other:http (cluster IP)
  all -> default/other:http/tcp6
pool default/other:http/tcp
  backend 10.244.1.10:8080
pool default/other:http/tcp6
  backend [fd00:244::10]:8080
unexpected  element 10.96.0.10:81/tcp ?
kernel: 2 of 2 objects as they should be, 1 unexpected
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
	if _, err := Of(table, "default/none", render, have); err == nil || fmt.Sprint(err) != "nothing of Service default/none is in force here" {
		t.Errorf("a Service that isn't there: %v", err)
	}
}
