package nftables

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

func apply(t testing.TB, p *Plane, want *model.Table, verify bool) {
	t.Helper()
	if _, err := p.Apply(context.Background(), want, kernel.VerifyIf(verify)); err != nil {
		t.Fatal(err)
	}
}

func checkObjects(t testing.TB, p *Plane, table *model.Table) {
	t.Helper()
	want, err := Render(table, p.options)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kernel differs from rendering (-want +got):\n%s", diff)
	}
}

// nft runs the nft command: it proves that others can read the table.
func nft(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestApplyReadsBackAsRendered(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	apply(t, p, table, false)
	checkObjects(t, p, table)
}

func TestOthersCanReadTheTable(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	apply(t, p, everything(), false)
	listed := nft(t, "list", "table", "inet", "fairway")
	t.Log(listed)
}

// TestFailureChangesNothing: a transaction that the kernel refuses in its last
// part leaves all as it was, and the next Apply sees to it.
func TestFailureChangesNothing(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	apply(t, p, table, false)
	nft(t, "add element inet fairway from-outside4 { 10.96.0.11 . tcp . 80 : 0:1 }")
	before := nft(t, "list", "table", "inet", "fairway")

	e := editPool(table, model.PoolID{Name: "default/web:http", Proto: model.TCP}, func(pool *model.Pool) {
		pool.Backends = backends("10.244.1.9:8080")
	}).Edit()
	front := *table.Frontend(model.Key{Addr: addr("10.96.0.10"), Port: 80, Proto: model.TCP})
	front.Addr = addr("10.96.0.11")
	e.SetFrontend(&front)
	want := e.Table()
	_, err := p.Apply(context.Background(), want, kernel.VerifyNothing)
	if err == nil || !strings.Contains(err.Error(), "add element 10.96.0.11 . tcp . 80 of map from-outside4: file exists") {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff(before, nft(t, "list", "table", "inet", "fairway")); diff != "" {
		t.Errorf("a refused transaction changed the table:\n%s", diff)
	}
	apply(t, p, want, false)
	checkObjects(t, p, want)
}

// TestChangeCostsTheSameAtAnySize counts netlink messages: an endpoint that
// comes or goes takes as many at 10,000 Services as at 100, and there are as many
// chains and rules.
func TestChangeCostsTheSameAtAnySize(t *testing.T) {
	inNamespace(t)
	const most = 8 // begin, three elements added, two removed, end; one to spare
	var rules []int
	for _, services := range []int{100, 10000} {
		table := synthetic(services, 5)
		p := newPlane(t, kernel.Options{})
		apply(t, p, table, false)
		more := withBackend(table, "10.200.0.1:8080")
		apply(t, p, more, false) // makes the chains for six slots
		for _, want := range []*model.Table{table, more} {
			before := p.socket.sent.Load()
			apply(t, p, want, false)
			if n := p.socket.sent.Load() - before; n == 0 || n > most {
				t.Errorf("%d Services: an endpoint change takes %d messages", services, n)
			}
		}
		c, err := p.socket.read()
		if err != nil {
			t.Fatal(err)
		}
		n := len(c.chains)
		for _, found := range c.chains {
			n += len(found.rules)
		}
		rules = append(rules, n)
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
	}
	if rules[0] != rules[1] {
		t.Errorf("%d chains and rules at 100 Services, %d at 10,000", rules[0], rules[1])
	}
}

func TestRemove(t *testing.T) {
	inNamespace(t)
	apply(t, newPlane(t, kernel.Options{}), everything(), false)
	p := newPlane(t, kernel.Options{}) // another process
	for range 2 {
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
	}
	if objects, err := p.objects(context.Background()); err != nil || len(objects) > 0 {
		t.Errorf("left over: %v, %v", objects, err)
	}
	if left := nft(t, "list", "ruleset"); left != "" {
		t.Errorf("left over:\n%s", left)
	}
}

// TestClientsAreRememberedByTheNumberOfTheirBackend holds the plane's hash to
// the kernel's: a packet's backend has the number that members has for it.
func TestClientsAreRememberedByTheNumberOfTheirBackend(t *testing.T) {
	inNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	e := model.NewTable().Edit()
	for vip, backend := range map[string]string{"10.96.0.9": "10.244.1.2:53", "fd00:10:96::9": "[fd00:10:244:1::2]:53"} {
		for _, a := range []string{vip, netip.MustParseAddrPort(backend).Addr().String()} {
			ip := &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(a)), Flags: unix.IFA_F_NODAD}
			if err := netlink.AddrAdd(lo, ip); err != nil {
				t.Fatal(err)
			}
			awaitLocal(t, ip.IP)
		}
		id := model.PoolID{Name: "default/sticky:", Proto: model.UDP, IPv6: addr(vip).Is6()}
		e.SetPool(&model.Pool{ID: id, Backends: backends(backend), Affinity: time.Hour})
		r := model.Route{Pool: id}
		e.SetFrontend(&model.Frontend{Key: model.Key{Addr: addr(vip), Port: 53, Proto: model.UDP}, Name: id.Name, Routes: routes(r, r, r)})
	}
	p := newPlane(t, kernel.Options{})
	apply(t, p, e.Table(), false)
	for vip, suffix := range map[string]string{"10.96.0.9:53": "4", "[fd00:10:96::9]:53": "6"} {
		conn, err := net.Dial("udp", vip)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("who?")); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		c, err := p.socket.read()
		if err != nil {
			t.Fatal(err)
		}
		var number string
		for _, member := range c.elements["members"+suffix] {
			number = formatClass(member.key)
		}
		listed := nft(t, "list", "map", "inet", "fairway", "clients"+suffix)
		if !regexp.MustCompile(` : ` + number + ` `).MatchString(listed) {
			t.Errorf("the backend's number is %s, the kernel remembers\n%s", number, listed)
		}
	}
}

// awaitLocal waits until an address is this machine's: the kernel adds the route to
// one of IPv6 a while after the address.
func awaitLocal(t *testing.T, a net.IP) {
	t.Helper()
	for late := range wait.Tries(30 * time.Second) {
		routes, err := netlink.RouteGet(a)
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
		if late {
			t.Fatalf("%s isn't this machine's: %v, %v", a, routes, err)
		}
	}
}

// TestNoLocalnet: where /proc/sys can't be written, node ports on localhost are
// left out and said to be; all else is in force.
func TestNoLocalnet(t *testing.T) {
	inNamespace(t)
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		source, target string
		flags          uintptr
	}{
		{"none", "/", unix.MS_REC | unix.MS_PRIVATE}, {"/proc/sys", "/proc/sys", unix.MS_BIND},
		{"none", "/proc/sys", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
	} {
		if err := unix.Mount(m.source, m.target, "", m.flags, ""); err != nil {
			t.Fatalf("mount %s: %v", m.target, err)
		}
	}
	p := newPlane(t, kernel.Options{})
	apply(t, p, everything(), false)
	listed := nft(t, "list", "map", "inet", "fairway", "from-pod4")
	if strings.Contains(listed, "127.0.0.1") || !strings.Contains(listed, "192.0.2.1") {
		t.Errorf("the map of frontends is\n%s", listed)
	}
	if !slices.ContainsFunc(p.Unsupported(), func(u kernel.Unsupported) bool { return u.Feature == kernel.LocalhostNodePort && u.Value == "IPv4" }) {
		t.Error("nothing says that there are no node ports on localhost")
	}
	apply(t, p, everything(), true)
}
