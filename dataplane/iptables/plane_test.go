package iptables

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/routelocalnet"
	"github.com/fairway-net/fairway/model"
)

// inNamespace moves the test's thread into a network namespace of its own. The
// thread ends with the test, and the namespace with it.
func inNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace (tests run as root): %v", err)
	}
}

func each(t *testing.T, run func(t *testing.T, o kernel.Options)) {
	for _, v := range iptables.Variants() {
		t.Run(string(v), func(t *testing.T) {
			inNamespace(t)
			run(t, kernel.Options{IPTablesVariant: string(v), StateDir: t.TempDir()})
		})
	}
}

func newPlane(t testing.TB, o kernel.Options) *Plane {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func apply(t testing.TB, p *Plane, table *model.Table, verify bool) {
	t.Helper()
	if _, err := p.Apply(context.Background(), table, kernel.VerifyIf(verify)); err != nil {
		t.Fatal(err)
	}
}

// run runs somebody else's command.
func run(t testing.TB, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
}

// check compares what the kernel holds with what the table renders to.
func check(t testing.TB, p *Plane, table *model.Table) {
	t.Helper()
	got, err := p.objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want, err := Render(table, p.options)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("kernel holds %d objects, want %d", len(got), len(want))
		for _, o := range got {
			if !slices.Contains(want, o) {
				t.Errorf("kernel holds %s", o)
			}
		}
		for _, o := range want {
			if !slices.Contains(got, o) {
				t.Errorf("want %s", o)
			}
		}
		t.FailNow()
	}
}

// restored counts what a plane has to write to come to a table.
func restored(t *testing.T, p *Plane, table *model.Table) int {
	t.Helper()
	n := 0
	for _, f := range iptables.Families() {
		todo, err := p.plan(context.Background(), f, applyRequest{want: table, changes: table.Since(nil), reads: true})
		if err != nil {
			t.Fatal(err)
		}
		n += len(todo.refusals) + len(todo.nat) + len(todo.rest) + len(todo.jumps)
	}
	return n
}

func TestKernelHoldsWhatIsRendered(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		for seed := range uint64(3) {
			r := rand.New(rand.NewPCG(seed, 5))
			table := randomEdit(r, model.NewTable(), 30, 400)
			p := newPlane(t, o)
			apply(t, p, table, false)
			check(t, p, table)
			for range 6 {
				table = randomEdit(r, table, 30, pick(r, 1, 5, 40))
				apply(t, p, table, false)
				check(t, p, table)
			}
			if n := restored(t, newPlane(t, o), table); n != 0 {
				t.Errorf("another process would rewrite %d chains, want none", n)
			}
		}
	})
}

func TestVerifyRepairs(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		r := rand.New(rand.NewPCG(1, 6))
		table := randomEdit(r, model.NewTable(), 10, 100)
		p := newPlane(t, o)
		apply(t, p, table, false)
		var in iptables.Input
		b := in.Block("nat")
		b.Chain(servicesChain)
		b.Chain("KUBE-SVC-LEFTBYSOMEBODY00", "-j KUBE-SEP-LEFTBYSOMEBODY00")
		b.Chain("KUBE-SEP-LEFTBYSOMEBODY00")
		b.DeleteRule("OUTPUT", jumps()[1].rule)
		if err := p.tool.Restore(context.Background(), iptables.IPv4, in.Bytes()); err != nil {
			t.Fatal(err)
		}
		for _, cutOff := range []bool{true, false} {
			result, err := p.Apply(context.Background(), table, kernel.VerifyAll)
			if err != nil || result.Repaired != cutOff {
				t.Fatalf("the plane says it repaired: %t, want %t; %v", result.Repaired, cutOff, err)
			}
		}
		check(t, p, table)
	})
}

// dump lists chains and rules of both variants, and the sysctl. Tables and
// chains of the kernel's that are empty don't count: the tools make them and
// never take them away.
func dump(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, command := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
		out, err := exec.Command(command).Output()
		if err != nil {
			t.Fatalf("%v: %v", command, err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":") && strings.Contains(line, " - ") {
				all.WriteString(command + " " + line)
			}
		}
	}
	value, err := os.ReadFile(routelocalnet.Path)
	if err != nil {
		t.Fatal(err)
	}
	return all.String() + "route_localnet " + string(value)
}

// before is what others have installed, and what is to stay of it.
const before = `*mangle
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -p tcp -m tcp --dport 25 -j DROP
COMMIT
`

func TestRemoveLeavesTheMachineAsItWas(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		p := newPlane(t, o)
		ctx := context.Background()
		for _, f := range iptables.Families() {
			if err := p.tool.Restore(ctx, f, []byte(before)); err != nil {
				t.Fatal(err)
			}
		}
		want := dump(t)
		kubeProxy, err := os.ReadFile("testdata/kube-proxy.rules")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.tool.Restore(ctx, iptables.IPv4, kubeProxy); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(2, 6))
		apply(t, p, randomEdit(r, model.NewTable(), 30, 400), false)
		if err := newPlane(t, o).Remove(ctx, kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		if got := dump(t); got != want {
			t.Errorf("left behind:\n%s\nwant:\n%s", got, want)
		}
		if err := p.Remove(ctx, kernel.EndConnections); err != nil {
			t.Errorf("remove again: %v", err)
		}
	})
}

// TestManyClients has the plane tell how many clients it remembers.
func TestManyClients(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		lack := slices.IndexFunc(newPlane(t, o).Unsupported(), func(l kernel.Unsupported) bool { return l.Feature == kernel.ManyClients })
		if n := rememberedClients(); (lack >= 0) != (n < plentyOfClients) || n < 1 {
			t.Errorf("endpoints have %d clients at most, and the plane says so: %t", n, lack >= 0)
		}
	})
}
