package userspace

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got, -update to accept):\n%s", path, diff)
	}
}

// everything is a table with one of all that makes a difference here.
func everything() *model.Table {
	ap := netip.MustParseAddrPort
	web := pool("web", model.TCP, ap("10.244.1.2:8080"), ap("10.244.2.2:8080"))
	web.Backends[1].Weight = 3
	local := pool("web", model.TCP, ap("10.244.1.2:8080"))
	local.ID.Local = true
	web6 := pool("web", model.TCP, ap("[fd00:10:244:1::2]:8080"))
	web6.Draining, web6.Affinity = []model.Backend{{Addr: addr("fd00:10:244:2::2"), Port: 8080, Weight: 1}}, 3*time.Hour
	dns := pool("dns", model.UDP)
	silent := pool("silent", model.UDP)
	silent.Empty = model.Drop
	t := tableOf(map[string]*model.Pool{
		"10.96.0.10:80": web, "[fd00:10:96::10]:80": web6, "203.0.113.9:80": web, "[2001:db8::9]:80": web6,
		"192.0.2.1:30080": web, "127.0.0.1:30080": web,
		"10.96.0.53:53": dns, "10.96.0.54:53": silent,
		"10.96.0.60:132": pool("sctp", model.SCTP, ap("10.244.1.2:8080")), "10.96.0.70:80": pool("empty", model.TCP),
	})
	e := t.Edit()
	e.SetSettings(&model.Settings{
		NodeAddrs: []netip.Addr{addr("192.0.2.1")},
		Reserved:  []netip.Prefix{prefix("10.96.0.0/16"), prefix("fd00:10:96::/112")},
		Exempt:    []netip.Addr{addr("10.96.0.77")},
	})
	e.SetPool(local)
	e.SetFrontend(&model.Frontend{
		Key: model.Key{Addr: addr("192.0.2.1"), Port: 30081, Proto: model.TCP}, Name: "default/web:", FrontendType: model.NodePort,
		Routes:  [model.NumOrigins]model.Route{{Pool: web.ID}, {Pool: web.ID, Masquerade: true}, {Pool: local.ID}},
		Sources: []netip.Prefix{prefix("198.51.100.0/24")},
	})
	return e.Table()
}

func TestRender(t *testing.T) {
	objects, err := Render(everything(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "everything.objects", text(objects))
}

func text(objects []kernel.Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// TestScript also runs what it gets, and looks whether the plane finds it.
func TestScript(t *testing.T) {
	files, err := Script(everything(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range files {
		golden(t, "everything."+name, content)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := newPlane(t, dir)
	for name, command := range map[string][]string{
		"ipv4.ip-batch": {"ip", "-4", "-batch"}, "ipv6.ip-batch": {"ip", "-6", "-batch"}, "return.nft": {"nft", "-f"},
	} {
		if out, err := exec.Command(command[0], append(command[1:], filepath.Join(dir, name))...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	routes, err := readRoutes()
	if diff := cmp.Diff(routesFor(everything()), routes, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("routes: %v (-want +got)\n%s", err, diff)
	}
	there, err := readReturnPath()
	if err != nil || len(there) != len(returnPathObjects())-2 { // nft leaves no mark on its rules
		t.Errorf("there is %v, %v; want all of %v", there, err, returnPathObjects())
	}
	if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Error(err)
	}
}
