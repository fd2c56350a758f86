package examine

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/bundle"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// TestBundleOfNamespace: with a namespace nothing of others is told.
func TestBundleOfNamespace(t *testing.T) {
	o := &explain.Objects{
		Services: []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "db"}}},
		Policies: []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "deny"}}},
	}
	scope("shop").objects(o)
	if len(o.Services) != 1 || o.Services[0].Name != "web" || len(o.Policies) != 0 {
		t.Errorf("objects: %d Services, %d policies", len(o.Services), len(o.Policies))
	}
	e := model.NewTable().Edit()
	for i, name := range []string{"shop/web:http", "bank/db:sql"} {
		pool := model.PoolID{Name: name}
		e.SetPool(&model.Pool{ID: pool})
		key := model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: 80, Proto: model.TCP}
		e.SetFrontend(&model.Frontend{Key: key, Name: name, Routes: [model.NumOrigins]model.Route{{Pool: pool}, {Pool: pool}, {Pool: pool}}})
	}
	table := e.Table()
	if text := scope("shop").table(table).String(); strings.Contains(text, "bank") || !strings.Contains(text, "shop/web") {
		t.Errorf("the table of a namespace:\n%s", text)
	}
	if scope("").table(table) != table || scope("shop").table(nil) != nil {
		t.Error("the table of all namespaces is another one")
	}
}

// TestLogOfNamespace: lines of an agent's log that name other namespaces' objects are left out.
func TestLogOfNamespace(t *testing.T) {
	const inside = "level=INFO msg=started addr=10.0.0.0/8 file=/run/fairway/state node=n1 port=80/tcp\n" +
		"level=WARN msg=\"no endpoints\" service=shop/web:http\n"
	const outside = "level=WARN msg=\"no endpoints\" service=bank/db:sql\n" +
		"level=ERROR msg=apply err=\"program bank/db: no room\"\n" + "level=INFO msg=x services=\"[shop/web bank/db]\"\n"
	if got := scope("shop").log(inside + outside); got != inside {
		t.Errorf("the log of a namespace:\n%s", got)
	}
	if got := scope("").log(inside + outside); got != inside+outside {
		t.Errorf("the log of all:\n%s", got)
	}
}

// TestNodeOfNamespace: what an agent says of other namespaces' Services is left out.
func TestNodeOfNamespace(t *testing.T) {
	n := bundle.Node{Changes: []agentlink.Change{{Service: "shop/web"}, {Service: "bank/db"}},
		Status: &agentlink.Status{LeftOut: []agentlink.LeftOut{{Name: "bank/db:sql", What: "no room"}, {What: "no conntrack"}}}}
	scope("shop").node(&n)
	if len(n.Changes) != 1 || n.Changes[0].Service != "shop/web" || len(n.Status.LeftOut) != 1 {
		t.Errorf("the node of a namespace: %+v, left out %+v", n.Changes, n.Status.LeftOut)
	}
}

// TestLogHere: the log of a process is the file that it writes to, its end only.
func TestLogHere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.log")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", logBytes)+"the end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := endOf(file)
	if err != nil || len(text) != logBytes || !strings.HasSuffix(string(text), "the end\n") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := endOf(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}
