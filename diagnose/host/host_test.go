package host

import (
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/test/netnstest"
)

func TestLegacyChains(t *testing.T) {
	got := legacyChains("ip", "filter", []byte(`-P INPUT ACCEPT
-P FORWARD DROP
-P OUTPUT ACCEPT
-N DOCKER
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -j ACCEPT

-A UNKNOWN -j ACCEPT
-A INPUT -p udp -m udp --dport 53 -j DROP
`))
	want := []doctor.Chain{
		{Family: "ip", Table: "filter", Name: "INPUT", Rules: 1, DropsNames: true, Legacy: true},
		{Family: "ip", Table: "filter", Name: "FORWARD", Hook: "forward", Drops: true, Rules: 2, Legacy: true},
		{Family: "ip", Table: "filter", Name: "OUTPUT", Legacy: true},
		{Family: "ip", Table: "filter", Name: "DOCKER", Legacy: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// TestRead reads the facts of whatever machine this is.
func TestRead(t *testing.T) {
	h := Read(t.Context())
	if v := h.Sysctls["net.ipv4.ip_forward"]; v != "0" && v != "1" {
		t.Errorf("net.ipv4.ip_forward is %q", v)
	}
}

// TestConntrackDrops reads a table of two processors.
func TestConntrackDrops(t *testing.T) {
	full, clashed := conntrackDrops("entries  clashres found insert insert_failed drop early_drop\n" +
		"00000010  00000000 00000000 00000000 00000002 0000000a 00000000\n00000010  00000000 00000000 00000000 00000001 00000010 00000000\n")
	if full != 26 || clashed != 3 {
		t.Errorf("%d for want of room, %d clashed", full, clashed)
	}
}

// TestDropsNames: a rule that compares port 53 and drops is told from one that accepts it.
func TestDropsNames(t *testing.T) {
	names := &expr.Cmp{Op: expr.CmpOpEq, Data: []byte{0, 53}}
	other := &expr.Cmp{Op: expr.CmpOpEq, Data: []byte{0, 80}}
	drop, accept := &expr.Verdict{Kind: expr.VerdictDrop}, &expr.Verdict{Kind: expr.VerdictAccept}
	for i, c := range []struct {
		exprs []expr.Any
		want  bool
	}{{[]expr.Any{names, drop}, true}, {[]expr.Any{names, &expr.Reject{}}, true}, {[]expr.Any{names, accept}, false}, {[]expr.Any{other, drop}, false}} {
		if got := dropsNames(&nftables.Rule{Exprs: c.exprs}); got != c.want {
			t.Errorf("rule %d: %v", i, got)
		}
	}
}

// TestUplinkBridges: a bridge that the default route leads to is found, and no other.
func TestUplinkBridges(t *testing.T) {
	ns := netnstest.New(t)
	bridges := func(commands ...string) (got []string) {
		t.Helper()
		for _, c := range commands {
			var out strings.Builder
			cmd := exec.Command("ip", strings.Fields(c)...)
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := ns.Start(cmd); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("ip %s: %v: %s", c, err, out.String())
			}
		}
		err := ns.Do(func() (err error) {
			got, err = uplinkBridges()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := bridges("link add br0 type bridge", "link add cni0 type bridge",
		"addr add 192.0.2.1/24 dev br0", "addr add 198.51.100.1/24 dev cni0", "link set br0 up", "link set cni0 up"); got != nil {
		t.Errorf("without a default route: %v", got)
	}
	if got := bridges("route add default via 192.0.2.2"); !slices.Equal(got, []string{"br0"}) {
		t.Errorf("got %v", got)
	}
}
