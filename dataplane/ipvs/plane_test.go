package ipvs

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/vm"
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

func text(objects []kernel.Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

func TestRenderedObjects(t *testing.T) {
	objects, err := Render(everything(t), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "everything.objects", text(objects))
}

func TestScripts(t *testing.T) {
	files, err := Script(everything(t), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		golden(t, "everything."+name, content)
	}
}

func newTestPlane(t *testing.T, f *fakeIPVS) *Plane {
	t.Helper()
	return planeIn(t, f, t.TempDir())
}

// planeIn is a plane of the processes that share a state directory.
func planeIn(t *testing.T, f *fakeIPVS, stateDir string) *Plane {
	t.Helper()
	p, err := newPlane(kernel.Options{StateDir: stateDir}, f)
	if err != nil {
		t.Fatal(err)
	}
	p.settings.Sysctls = nil       // those of IPVS are not there
	p.background = func(func()) {} // the fake is not for concurrent use
	standIn(t)
	return p
}

// standIn makes a bridge named kube-ipvs0, where the kernel has no dummy
// interfaces.
func standIn(t *testing.T) {
	t.Helper()
	has, err := vm.Has("dummy")
	if err != nil {
		t.Fatal(err)
	}
	if there, err := net.InterfaceByName(Interface); !has && (err != nil || there == nil) {
		command(t, "", "ip", "link", "add", Interface, "type", "bridge")
	}
}

// apply applies and compares what is read back with what is rendered.
func apply(t *testing.T, p *Plane, table *model.Table, verify bool) {
	t.Helper()
	if _, err := p.Apply(context.Background(), table, kernel.VerifyIf(verify)); err != nil {
		t.Fatal(err)
	}
	same(t, p, table)
}

func same(t *testing.T, p *Plane, table *model.Table) {
	t.Helper()
	got, err := p.objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want, err := Render(table, p.options)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Fatalf("objects (-rendered +read):\n%s", diff)
	}
}

func command(t testing.TB, stdin string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// counted is what ipset says of an element's counters.
var counted = regexp.MustCompile(`packets \d+ bytes \d+ `)

// dump is all that the plane might have changed in a namespace.
func dump(t *testing.T) string {
	var b strings.Builder
	for _, c := range [][]string{
		{"ipset", "save"}, {"ip", "-br", "address"}, {"ip", "route", "show", "table", "all"},
		{"iptables-nft-save"}, {"ip6tables-nft-save"}, {"sysctl", "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"},
	} {
		for line := range strings.Lines(command(t, "", c[0], c[1:]...)) {
			if c[0] == "ip" { // in no order
				fields := strings.Fields(line)
				slices.Sort(fields)
				line = strings.Join(fields, " ") + "\n"
			}
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "*") && line != "COMMIT\n" {
				b.WriteString(counted.ReplaceAllString(line, ""))
			}
		}
	}
	return b.String()
}

func TestAppliedIsRendered(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		before := dump(t)
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		table := everything(t)
		apply(t, p, table, false)
		apply(t, p, table, true)
		apply(t, newTestPlane(t, f), table, false) // another process adopts
		small := edit(t, model.NewTable())
		small.edit.SetSettings(settings())
		apply(t, p, small.table(), false)
		apply(t, p, table, false)
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		if len(f.servers) != 0 {
			t.Errorf("%d virtual servers left", len(f.servers))
		}
		if diff := cmp.Diff(before, dump(t)); diff != "" {
			t.Errorf("left behind (-before +after):\n%s", diff)
		}
		if err := newTestPlane(t, f).Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Errorf("remove again: %v", err)
		}
	})
}

func TestScriptsAreValidInput(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		files, err := Script(everything(t), kernel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		standIn(t)
		addresses, _ := strings.CutPrefix(files["addresses.ip-batch"], "link add kube-ipvs0 type dummy\n")
		command(t, addresses, "ip", "-batch", "-")
		command(t, files["ipset.restore"], "ipset", "restore")
		command(t, files["iptables.restore"], "iptables-nft-restore", "--noflush")
		command(t, files["ip6tables.restore"], "ip6tables-nft-restore", "--noflush")
		var added []string
		for line := range strings.Lines(command(t, "", "ipset", "save")) {
			if strings.HasPrefix(line, "add ") {
				added = append(added, counted.ReplaceAllString(line, ""))
			}
		}
		slices.Sort(added)
		var wanted []string
		for line := range strings.Lines(files["ipset.restore"]) {
			if strings.HasPrefix(line, "add ") {
				wanted = append(wanted, line)
			}
		}
		slices.Sort(wanted)
		if diff := cmp.Diff(wanted, added); diff != "" {
			t.Errorf("ipset save (-wanted +saved):\n%s", diff)
		}
	})
}
