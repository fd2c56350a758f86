package ipvs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	mobyipvs "github.com/moby/ipvs"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// TestIncrementalEqualsWhole walks through random tables; after each step, what
// was reached by changes is what the table renders to.
func TestIncrementalEqualsWhole(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		p := newTestPlane(t, newFakeIPVS())
		random := rand.New(rand.NewPCG(1, 2))
		table := everything(t)
		apply(t, p, table, false)
		for step := range 60 {
			table = randomStep(t, random, table)
			apply(t, p, table, step%20 == 19)
		}
	})
}

func randomStep(t *testing.T, random *rand.Rand, from *model.Table) *model.Table {
	b := edit(t, from)
	for range 1 + random.IntN(4) {
		name := fmt.Sprintf("r/svc%d:p", random.IntN(6))
		all, here := randomPool(random, name, false), randomPool(random, name, true)
		b.edit.SetPool(all)
		b.edit.SetPool(here)
		for n := range 3 {
			k := key(fmt.Sprintf("10.96.7.%d:%d", random.IntN(8), 80+n), model.TCP)
			entrance := model.FrontendType(random.IntN(4))
			if entrance == model.NodePort {
				k = key(fmt.Sprintf("192.168.9.1:%d", 30000+random.IntN(20)), model.TCP)
			}
			if random.IntN(3) == 0 {
				b.edit.DeleteFrontend(k)
				continue
			}
			f := &model.Frontend{Key: k, Name: name, FrontendType: entrance}
			for o := range f.Routes {
				f.Routes[o] = model.Route{Pool: []model.PoolID{all.ID, here.ID}[random.IntN(2)], Masquerade: random.IntN(2) == 0}
			}
			if random.IntN(4) == 0 {
				f.Sources = prefixes("10.0.0.0/8", "192.168.9.0/24")[:random.IntN(3)]
			}
			b.edit.SetFrontend(f)
		}
	}
	if random.IntN(15) == 0 {
		changed := *settings()
		changed.Reserved = prefixes("10.96.0.0/16", "10.97.0.0/16")[:1+random.IntN(2)]
		b.edit.SetSettings(&changed)
	}
	return b.table()
}

func randomPool(random *rand.Rand, name string, local bool) *model.Pool {
	p := &model.Pool{
		ID: model.PoolID{Name: name, Proto: model.TCP, Local: local}, Empty: model.Empty(random.IntN(2)),
		Orphans:   model.OrphansReset,
		Scheduler: []model.Scheduler{"", model.LeastConnection, model.DestinationHashing, model.Random}[random.IntN(4)],
		Affinity:  time.Duration(random.IntN(2)) * time.Minute,
	}
	for n := range 6 {
		at := netip.AddrFrom4([4]byte{10, 244, 9, byte(n)})
		switch b := (model.Backend{Addr: at, Port: 8080, Weight: uint16(1 + random.IntN(2)), Local: true}); random.IntN(4) {
		case 0, 1:
			p.Backends = append(p.Backends, b)
		case 2:
			p.Draining = append(p.Draining, b)
		}
	}
	return p
}

// TestCostOfAnEndpoint counts netlink messages for one endpoint, however large
// the table is.
func TestCostOfAnEndpoint(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, services := range []int{10, 1000} {
			f := newFakeIPVS()
			p := newTestPlane(t, f)
			b := edit(t, model.NewTable())
			b.edit.SetSettings(settings())
			var last model.PoolID
			for n := range services {
				name := fmt.Sprintf("ns/svc%d:p", n)
				last = b.pool(model.Pool{ID: model.PoolID{Name: name}}, fmt.Sprintf("10.244.%d.%d:80", n/250, n%250), "10.244.99.1:80")
				b.frontend(fmt.Sprintf("10.96.%d.%d:80", 1+n/250, n%250), model.ClusterIP, last, false)
				b.frontend(fmt.Sprintf("192.168.9.1:%d", 30000+n), model.NodePort, last, true)
			}
			table := b.table()
			apply(t, p, table, false)
			messages, listings, ipsetMessages := f.messages, f.listings, p.sets.Messages
			b = edit(t, table)
			b.pool(model.Pool{ID: last, Orphans: model.OrphansReset}, "10.244.99.1:80", "10.244.99.2:80")
			if _, err := p.Apply(context.Background(), b.table(), kernel.VerifyNothing); err != nil {
				t.Fatal(err)
			}
			// Each of two servers: one destination comes, one goes.
			if n := f.messages - messages; n != 4 {
				t.Errorf("%d services: %d messages to IPVS, not 4", services, n)
			}
			// KUBE-LOOP-BACK: one entry comes, one goes.
			if n := p.sets.Messages - ipsetMessages; n != 2 {
				t.Errorf("%d services: %d messages to ipset, not 2", services, n)
			}
			if f.listings != listings {
				t.Errorf("%d services: virtual servers were listed", services)
			}
			if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOrphansStayUntilTheirConnectionsEnd(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		pools := map[model.Orphans]model.PoolID{}
		make := func(from *model.Table, at ...string) *model.Table {
			b := edit(t, from)
			b.edit.SetSettings(settings())
			for o, name := range []string{"a/keep:p", "a/reset:p", "a/late:p"} {
				pools[model.Orphans(o)] = b.pool(model.Pool{ID: model.PoolID{Name: name}, Orphans: model.Orphans(o), OrphanDeadline: time.Hour}, at...)
				b.frontend(fmt.Sprintf("10.96.0.%d:80", 10+o), model.ClusterIP, pools[model.Orphans(o)], false)
			}
			return b.table()
		}
		weight := func(o model.Orphans) int {
			d := f.servers[lvs.KeyServer(key(fmt.Sprintf("10.96.0.%d:80", 10+o), model.TCP))].destinations[netip.MustParseAddrPort("10.244.0.2:80")]
			if d == nil {
				return -1
			}
			return d.Weight
		}
		expect := func(when string, keep, reset, late int) {
			t.Helper()
			if got := [3]int{weight(model.OrphansKeep), weight(model.OrphansReset), weight(model.OrphansDeadline)}; got != [3]int{keep, reset, late} {
				t.Errorf("%s: weights %v, want %v", when, got, [3]int{keep, reset, late})
			}
		}
		f.connections[netip.MustParseAddrPort("10.244.0.2:80")] = 1
		both := make(model.NewTable(), "10.244.0.2:80", "10.244.0.3:80")
		apply(t, p, both, false)
		expect("at first", 1, 1, 1)
		one := make(both, "10.244.0.3:80")
		apply(t, p, one, false)
		expect("gone", 0, -1, 0)
		apply(t, p, one, true)
		expect("after a comparison", 0, -1, 0)
		p.reap(time.Now())
		expect("with connections", 0, -1, 0)
		apply(t, p, make(one, "10.244.0.2:80", "10.244.0.3:80"), false)
		expect("back", 1, 1, 1)
		apply(t, p, make(p.state.table, "10.244.0.3:80"), false)
		expect("gone again", 0, -1, 0)
		p.reap(time.Now().Add(2 * time.Hour))
		expect("after the deadline", 0, -1, -1)
		f.connections[netip.MustParseAddrPort("10.244.0.2:80")] = 0
		p.reap(time.Now())
		expect("without connections", -1, -1, -1)
	})
}

// TestDeadlineOutlivesProcess: an orphan's deadline is the one that an earlier process has
// set, unless its backend has been back since.
func TestDeadlineOutlivesProcess(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f, dir := newFakeIPVS(), t.TempDir()
		at := netip.MustParseAddrPort("10.244.0.2:80")
		f.connections[at] = 1
		id := lvs.KeyServer(key("10.96.0.10:80", model.TCP))
		table := func(from *model.Table, wait time.Duration, backends ...string) *model.Table {
			b := edit(t, from)
			b.edit.SetSettings(settings())
			b.frontend("10.96.0.10:80", model.ClusterIP, b.pool(model.Pool{ID: model.PoolID{Name: "a/late:p"}, Orphans: model.OrphansDeadline, OrphanDeadline: wait}, backends...), false)
			return b.table()
		}
		there := func() bool { return f.servers[id].destinations[at] != nil }
		first := planeIn(t, f, dir)
		both := table(model.NewTable(), time.Hour, "10.244.0.2:80", "10.244.0.3:80")
		apply(t, first, both, false)
		apply(t, first, table(both, time.Hour, "10.244.0.3:80"), false)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		first.reap(time.Now()) // which may still be under way

		second := planeIn(t, f, dir)
		apply(t, second, table(model.NewTable(), 3*time.Hour, "10.244.0.3:80"), false)
		second.reap(time.Now().Add(30 * time.Minute))
		if !there() {
			t.Fatal("ended before its deadline")
		}
		second.reap(time.Now().Add(90 * time.Minute))
		if there() {
			t.Error("its deadline has passed, though not that of a time which began anew")
		}

		// Back and gone again, the time begins anew.
		apply(t, second, table(second.state.table, time.Hour, "10.244.0.2:80", "10.244.0.3:80"), false)
		apply(t, second, table(second.state.table, time.Hour, "10.244.0.3:80"), false)
		third := planeIn(t, f, dir)
		apply(t, third, table(model.NewTable(), 3*time.Hour, "10.244.0.2:80", "10.244.0.3:80"), false)
		apply(t, third, table(third.state.table, 3*time.Hour, "10.244.0.3:80"), false)
		third.reap(time.Now().Add(90 * time.Minute))
		if !there() {
			t.Error("ended by a deadline from before its backend was back")
		}
		third.reap(time.Now().Add(4 * time.Hour))
		if left, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "deadlines") }) {
			t.Errorf("without orphans there are %v, %v", left, err)
		}
	})
}

// TestOpeningConnectionsKeepDetours: what was led past a server while its scheduler
// changed isn't reset before it is established.
func TestOpeningConnectionsKeepDetours(t *testing.T) {
	opening := lvs.Load{Active: 0, Total: 1}
	if drainingConns(lvs.ServerID{Mark: markRange | bypassBit | 1}, settings(), opening) == 0 {
		t.Error("a connection that is being made doesn't keep its bypass server")
	}
	if drainingConns(lvs.KeyServer(key("203.0.113.10:80", model.TCP)), settings(), opening) != 0 {
		t.Error("one that may be over keeps packets from an external address")
	}
}

// TestRetiredServers: connections outlive their Service, and a restart; new
// ones are refused, until the Service is back.
func TestRetiredServers(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		table := everything(t)
		apply(t, p, table, false)
		before := dump(t)
		f.connections[netip.MustParseAddrPort("10.244.0.2:8080")] = 1
		b := edit(t, table)
		gone := []model.Key{key("10.96.0.10:80", model.TCP), key("192.168.9.1:30080", model.TCP), key("10.96.0.53:53", model.UDP)}
		for _, k := range gone {
			b.edit.DeleteFrontend(k)
		}
		without := b.table()
		retired := func(when string) {
			t.Helper()
			for _, k := range gone[:2] {
				s := f.servers[lvs.KeyServer(k)]
				if s == nil || len(s.destinations) != 1 || s.destinations[netip.MustParseAddrPort("10.244.0.2:8080")].Weight != 0 {
					t.Errorf("%s: %s is not retired: %+v", when, k, s)
				}
				for _, set := range []string{"KUBE-FROM-POD", "KUBE-FROM-NODE", "KUBE-FROM-OUTSIDE"} {
					if !strings.Contains(dump(t), "add "+set+" "+keyElement(k).Text(ipset.HashIPPort)+" skbmark 0x46000001\n") {
						t.Errorf("%s: %s: no refusal in %s", when, k, set)
					}
				}
			}
			if !strings.Contains(dump(t), "10.96.0.10/32") {
				t.Errorf("%s: the address is gone", when)
			}
			if f.servers[lvs.KeyServer(gone[2])] != nil {
				t.Errorf("%s: a UDP server is kept", when)
			}
		}
		apply(t, p, without, false)
		retired("Services gone")
		apply(t, p, without, true)
		retired("after a comparison")
		p = newTestPlane(t, f)
		apply(t, p, without, false)
		retired("in another process")
		p.reap(time.Now())
		retired("with connections")
		apply(t, p, table, false)
		if diff := gocmp.Diff(before, dump(t)); diff != "" {
			t.Errorf("Services back (-before +after):\n%s", diff)
		}
		apply(t, p, without, false)
		f.connections[netip.MustParseAddrPort("10.244.0.2:8080")] = 0
		p.reap(time.Now())
		same(t, p, without)
		if f.servers[lvs.KeyServer(gone[0])] != nil || strings.Contains(dump(t), "10.96.0.10") {
			t.Error("the retired server is not buried")
		}
		apply(t, p, without, true)
	})
}

func TestMissingSchedulerFallsBack(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f := newFakeIPVS()
		f.lacks = []model.Scheduler{model.LeastConnection}
		p := newTestPlane(t, f)
		b := edit(t, model.NewTable())
		pool := b.pool(model.Pool{ID: model.PoolID{Name: "a/b:c"}, Scheduler: model.LeastConnection}, "10.244.0.2:80")
		b.frontend("10.96.0.1:80", model.ClusterIP, pool, false)
		if _, err := p.Apply(context.Background(), b.table(), kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		if s := f.servers[lvs.KeyServer(key("10.96.0.1:80", model.TCP))].service.SchedName; s != "rr" {
			t.Errorf("scheduler %q", s)
		}
		for _, l := range p.Unsupported() {
			if l.Feature == kernel.Scheduling && l.Value == "lc" {
				return
			}
		}
		t.Errorf("the lack is not told: %v", p.Unsupported())
	})
}

// TestOthersServersStay: what is neither ours nor kube-proxy's is left alone;
// what kube-proxy had is taken over in place.
func TestOthersServersStay(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		table := everything(t)
		others := []lvs.ServerID{lvs.KeyServer(key("192.168.9.1:8443", model.TCP)), lvs.KeyServer(key("10.96.0.99:80", model.TCP)), {Mark: 7}}
		stale := []lvs.ServerID{lvs.KeyServer(key("10.96.0.77:80", model.TCP)), lvs.KeyServer(key("192.168.9.1:31000", model.TCP))}
		for _, id := range append(others, stale...) {
			if err := f.NewService(lvs.ToService(id, lvs.Service{Scheduler: "rr"})); err != nil {
				t.Fatal(err)
			}
		}
		kept := lvs.KeyServer(key("10.96.0.10:80", model.TCP))
		if err := f.NewService(lvs.ToService(kept, lvs.Service{Scheduler: "wlc"})); err != nil {
			t.Fatal(err)
		}
		old := f.servers[kept]
		dest := &mobyipvs.Destination{Address: []byte{10, 244, 0, 2}, Port: 8080, Weight: 1, AddressFamily: 2}
		if err := f.NewDestination(old.service, dest); err != nil {
			t.Fatal(err)
		}
		// Sets and rules as kube-proxy's ipvs mode makes them, references and all.
		command(t, "create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 31000\n"+
			"create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\nadd KUBE-CLUSTER-IP 10.96.0.77,tcp:80\n"+
			"create KUBE-LOAD-BALANCER-SOURCE-IP hash:ip,port,ip\n", "ipset", "restore")
		command(t, "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"+
			"-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n"+
			"*filter\n:KUBE-NODE-PORT - [0:0]\n-A INPUT -m comment --comment \"kubernetes health check rules\" -j KUBE-NODE-PORT\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n",
			"iptables-nft-restore", "--noflush")
		if _, err := p.Apply(context.Background(), table, kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		if f.servers[kept] != old || old.destinations[at(dest)] != dest {
			t.Error("a server of kube-proxy's was made anew instead of taken over")
		}
		for _, id := range others {
			if f.servers[id] == nil {
				t.Errorf("%s of somebody else is gone", id)
			}
		}
		for _, id := range stale {
			if f.servers[id] != nil {
				t.Errorf("stale %s is still there", id)
			}
		}
		for _, id := range others {
			delete(f.servers, id)
		}
		same(t, p, table)
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		if left := dump(t); left != "lo               DOWN           \n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n" && len(f.servers) != 0 {
			t.Errorf("left behind: %d servers, %s", len(f.servers), left)
		}
	})
}

func TestBadOptions(t *testing.T) {
	for _, o := range []kernel.Options{{Scheduler: "fastest"}, {MasqueradeMark: 0x3}, {MasqueradeMark: 1 << 30}} {
		if _, err := Render(model.NewTable(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
