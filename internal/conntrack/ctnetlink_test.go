package conntrack

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// inNamespace moves the test into a network namespace of its own. The thread
// is never given back.
func inNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
}

func addFlow(t *testing.T, proto model.Protocol, from, to, backend netip.AddrPort) {
	t.Helper()
	flow := &netlink.ConntrackFlow{
		FamilyType: familyOf(to.Addr()),
		Forward: netlink.IPTuple{
			SrcIP: net.IP(from.Addr().AsSlice()), SrcPort: from.Port(),
			DstIP: net.IP(to.Addr().AsSlice()), DstPort: to.Port(), Protocol: uint8(proto),
		},
		Reverse: netlink.IPTuple{
			SrcIP: net.IP(backend.Addr().AsSlice()), SrcPort: backend.Port(),
			DstIP: net.IP(from.Addr().AsSlice()), DstPort: from.Port(), Protocol: uint8(proto),
		},
		TimeOut: 600,
	}
	if proto == model.TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: 3}
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(familyOf(to.Addr())), flow); err != nil {
		t.Fatalf("create %s flow: %v", proto, err)
	}
}

func flows(t *testing.T, proto model.Protocol) []string {
	t.Helper()
	var out []string
	err := list(kind{unix.AF_INET, proto}, func(f *Flow) {
		out = append(out, f.Client.String()+" > "+f.Frontend.String()+" = "+f.Backend.String())
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func TestRunForgetsExactlyTheStaleFlows(t *testing.T) {
	inNamespace(t)
	another := netip.MustParseAddrPort("10.244.1.9:40001")
	addFlow(t, model.UDP, client, vip, one)
	addFlow(t, model.UDP, another, vip, two)
	addFlow(t, model.UDP, another, nodePort, one)
	addFlow(t, model.UDP, netip.MustParseAddrPort("10.244.1.9:40002"), netip.MustParseAddrPort("10.96.0.99:53"), one)
	addFlow(t, model.TCP, client, vip, one)

	old, want := service(model.UDP, nil, one, two), service(model.UDP, nil, two)
	result, err := Plan(old, want, want.Since(old)).Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if result != (Result{Seen: 4, Forgotten: 2}) {
		t.Errorf("got %+v", result)
	}
	left := []string{"10.244.1.9:40001 > 10.96.0.10:53 = 10.244.2.2:5353", "10.244.1.9:40002 > 10.96.0.99:53 = 10.244.1.2:5353"}
	if got := flows(t, model.UDP); !slices.Equal(got, left) {
		t.Errorf("UDP flows left: %q", got)
	}
	if got := flows(t, model.TCP); len(got) != 1 {
		t.Errorf("TCP flows left: %q", got)
	}
}

func TestRunGivesOrphansADeadline(t *testing.T) {
	inNamespace(t)
	established := Flow{Proto: model.TCP, Client: client, Frontend: vip, Backend: one, Source: client, TCPState: TCPEstablished, Status: SeenReply, Expires: 600}
	if err := established.Insert(); err != nil {
		t.Fatal(err)
	}
	old := service(model.TCP, nil, one)
	want := service(model.TCP, orphans(model.OrphansDeadline, 20*time.Second), two)
	for run, expiring := range []int{1, 0} { // a second run leaves the deadline alone
		result, err := Plan(old, want, want.Since(old)).Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if result.Expiring != expiring {
			t.Errorf("run %d: got %+v", run, result)
		}
	}
	list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].TimeOut > 20 {
		t.Errorf("got %v, want one flow with at most 20 s to live", list)
	}
	back := service(model.TCP, orphans(model.OrphansDeadline, 20*time.Second), two, one)
	for _, before := range []*model.Table{want, nil} { // nil: by an agent that was restarted meanwhile
		if before == nil {
			if _, err := Plan(back, want, want.Since(back)).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		result, err := Plan(before, back, back.Since(before)).Run(t.Context())
		if err != nil || result.Renewed != 1 {
			t.Errorf("the backend is back: %+v, %v", result, err)
		}
		list, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != 1 || list[0].TimeOut < establishedTimeout-1000 {
			t.Errorf("got %v, want one flow that has no end", list)
		}
	}
}

// TestRunFindsFlowsOfAllKinds lists what one change has made stale in both
// families and protocols.
func TestRunFindsFlowsOfAllKinds(t *testing.T) {
	inNamespace(t)
	addFlow(t, model.UDP, client, vip, one)
	addFlow(t, model.TCP, client, vip, one)
	six := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	client6, vip6, one6 := six("[fd00::1]:40000"), six("[fd00:96::10]:53"), six("[fd00:244::2]:5353")
	addFlow(t, model.UDP, client6, vip6, one6)

	e := service(model.UDP, nil, one).Edit()
	id6, id := model.PoolID{Name: "dns", Proto: model.UDP, IPv6: true}, model.PoolID{Name: "dns", Proto: model.TCP}
	e.SetPool(&model.Pool{ID: id6, Backends: []model.Backend{{Addr: one6.Addr(), Port: one6.Port(), Weight: 1}}})
	e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{{Addr: one.Addr(), Port: one.Port(), Weight: 1}}, Orphans: model.OrphansReset})
	for pool, at := range map[model.PoolID]netip.AddrPort{id6: vip6, id: vip} {
		r := model.Route{Pool: pool}
		e.SetFrontend(&model.Frontend{Key: model.Key{Addr: at.Addr(), Port: at.Port(), Proto: pool.Proto}, Routes: [model.NumOrigins]model.Route{r, r, r}})
	}
	old := e.Table()
	e = old.Edit()
	for p := range old.Pools() {
		without := *p
		without.Backends = nil
		without.Orphans = model.OrphansReset
		e.SetPool(&without)
	}
	want := e.Table()
	result, err := Plan(old, want, want.Since(old)).Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if result != (Result{Seen: 3, Forgotten: 3}) {
		t.Errorf("got %+v", result)
	}
}
