package ipvs

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/vm"
)

// The tests of this file need a kernel with IP_VS: they run in the virtual
// machine where the one at hand has none.

// fullDump is dump with IPVS and what the plane sets of sysctls.
func fullDump(t *testing.T) string {
	return dump(t) + command(t, "", "ipvsadm", "-Sn") + command(t, "", "ipvsadm", "-L", "--timeout") + command(t, "", "sysctl",
		"net.ipv4.vs.conntrack", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.vs.expire_quiescent_template", "net.ipv4.vs.conn_reuse_mode",
		"net.ipv4.tcp_early_demux", "net.ipv4.udp_early_demux")
}

// node makes the namespace's interfaces something like a node's.
func node(t *testing.T) {
	for _, c := range []string{
		"link set lo up", "link add up0 type dummy", "link set up0 up", "address add 192.168.9.1/24 dev up0",
		"address add fd00:9::1/64 dev up0 nodad", "route add default via 192.168.9.254",
	} {
		command(t, "", "ip", strings.Fields(c)...)
	}
	// The kernel adds the routes to IPv6 addresses a while after these.
	addresses := strings.Fields(command(t, "", "ip", "-6", "-br", "address", "show", "dev", "up0"))[2:]
	for late := range wait.Tries(30 * time.Second) {
		routes := command(t, "", "ip", "-6", "route", "show", "table", "local", "dev", "up0")
		missing := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool {
			a, _, _ = strings.Cut(a, "/")
			return strings.Contains(routes, "local "+a+" ")
		})
		if len(missing) == 0 {
			return
		}
		if late {
			t.Fatalf("no routes to %v:\n%s", missing, routes)
		}
	}
}

func TestRealKernelHoldsWhatIsRendered(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		inNamespace(t, func(t *testing.T) {
			node(t)
			// Reading rules makes the tables; IPVS is there with its first use.
			command(t, "*filter\nCOMMIT\n*nat\nCOMMIT\n*mangle\nCOMMIT\n", "iptables-nft-restore", "--noflush")
			before := fullDump(t)
			options := kernel.Options{StateDir: t.TempDir()}
			p, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			table := everything(t)
			apply(t, p, table, false)
			apply(t, p, table, true)
			if route := command(t, "", "ip", "route", "get", "10.96.0.10"); !strings.Contains(route, "src 192.168.9.1 ") {
				t.Errorf("a process of the node reaches for a Service as %s", route)
			}
			if p, err = New(options); err != nil {
				t.Fatal(err)
			}
			apply(t, p, table, false)
			if len(p.choose.missing) > 0 {
				t.Errorf("schedulers missing: %v", p.choose.missing)
			}
			if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, fullDump(t)); diff != "" {
				t.Errorf("left behind (-before +after):\n%s", diff)
			}
		})
	}, "ip_vs", "dummy")
}

func TestRealToolsTakeScripts(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		inNamespace(t, func(t *testing.T) {
			node(t)
			table := everything(t)
			files, err := Script(table, kernel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			command(t, files["addresses.ip-batch"], "ip", "-batch", "-")
			command(t, files["ipset.restore"], "ipset", "restore")
			command(t, files["ipvsadm.restore"], "ipvsadm", "-R")
			command(t, files["iptables.restore"], "iptables-restore", "--noflush")
			command(t, files["ip6tables.restore"], "ip6tables-restore", "--noflush")
			p, err := New(kernel.Options{StateDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			same(t, p, table)
		})
	}, "ip_vs", "dummy")
}
