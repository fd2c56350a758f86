package allocator

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/internal/iprange"
)

func ranges(t *testing.T, texts ...string) []iprange.Range {
	t.Helper()
	var list []iprange.Range
	for _, text := range texts {
		r, err := iprange.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

func addresses(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func selector(text string) []labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	return []labels.Selector{s}
}

// request returns a Service of the default namespace with port 80.
func request(name string, change ...func(*Request)) Request {
	r := Request{
		Service:  types.NamespacedName{Namespace: "default", Name: name},
		Families: []Family{IPv4},
		Ports:    []Port{{"TCP", 80}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func families(f ...Family) func(*Request) { return func(r *Request) { r.Families = f } }
func prefer(f ...Family) func(*Request) {
	return func(r *Request) { r.Families, r.Prefer = f, true }
}
func asking(texts ...string) func(*Request) {
	return func(r *Request) { r.Addresses = addresses(texts...) }
}
func fromPool(name string) func(*Request)     { return func(r *Request) { r.Pool = name } }
func sharing(key string) func(*Request)       { return func(r *Request) { r.SharingKey = key } }
func on(port uint16) func(*Request)           { return func(r *Request) { r.Ports = []Port{{"TCP", port}} } }
func local(backends string) func(*Request)    { return func(r *Request) { r.Backends = backends } }
func in(namespace string) func(*Request)      { return func(r *Request) { r.Service.Namespace = namespace } }
func inLabeled(set labels.Set) func(*Request) { return func(r *Request) { r.NamespaceLabels = set } }
func labeled(set labels.Set) func(*Request)   { return func(r *Request) { r.Labels = set } }

// step is one call of Ensure, or with free one of Free.
type step struct {
	request Request
	has     []string // what its status says
	free    bool
	// unwritten says that the status doesn't say yet what the Service is to have.
	unwritten bool
	want      string // "pool: addresses", or "" and why not
	lost      string // part of why it couldn't keep what it had
	err       string
}

func TestAllocation(t *testing.T) {
	auto := func(name string, texts ...string) Pool {
		return Pool{Name: name, Ranges: ranges(t, texts...), AutoAssign: true}
	}
	both := auto("both", "192.0.2.1-192.0.2.4", "2001:db8::1-2001:db8::4")
	only4, only6 := auto("four", "198.51.100.0/30"), auto("six", "2001:db8:1::/126")
	manual := auto("manual", "203.0.113.0/24")
	manual.AutoAssign = false
	careful := auto("careful", "192.0.2.255-192.0.3.1")
	careful.AvoidBuggy = true
	restricted := func(name string, priority int, text string, change func(*Pool)) Pool {
		p := auto(name, text)
		p.Restricted, p.Priority = true, priority
		change(&p)
		return p
	}
	ofTeam := restricted("team", 0, "10.1.0.0/24", func(p *Pool) { p.Namespaces = []string{"team"} })
	first := restricted("first", 1, "10.2.0.0/32", func(p *Pool) { p.Namespaces = []string{"team"} })
	second := restricted("second", 2, "10.3.0.0/24", func(p *Pool) { p.Namespaces = []string{"team"} })
	byLabel := restricted("bylabel", 0, "10.4.0.0/24", func(p *Pool) { p.NamespaceSelectors = selector("env=prod") })
	byService := restricted("byservice", 0, "10.5.0.0/24", func(p *Pool) { p.ServiceSelectors = selector("app=web") })
	byBoth := restricted("byboth", 0, "10.6.0.0/24", func(p *Pool) {
		p.Namespaces, p.ServiceSelectors = []string{"team"}, selector("app=web")
	})

	tests := []struct {
		name  string
		pools []Pool
		steps []step
	}{
		{"no pools", nil, []step{{request: request("a"), err: "create an IPAddressPool"}}},
		{"one after the other, until none is left", []Pool{auto("p", "192.0.2.1-192.0.2.2")}, []step{
			{request: request("a"), want: "p: 192.0.2.1"},
			{request: request("b"), want: "p: 192.0.2.2"},
			{request: request("c"), err: "no address left"},
			{request: request("a"), free: true},
			{request: request("c"), want: "p: 192.0.2.1"},
		}},
		{"asked again, the same answer", []Pool{both}, []step{
			{request: request("a"), want: "both: 192.0.2.1"},
			{request: request("a"), want: "both: 192.0.2.1"},
		}},
		{"ranges and CIDRs in one pool", []Pool{auto("p", "192.0.2.7-192.0.2.7", "192.0.2.0/32")}, []step{
			{request: request("a"), want: "p: 192.0.2.0"},
			{request: request("b"), want: "p: 192.0.2.7"},
		}},
		{"IPv6", []Pool{both}, []step{{request: request("a", families(IPv6)), want: "both: 2001:db8::1"}}},
		{"both families, in the Service's order", []Pool{both}, []step{
			{request: request("a", families(IPv4, IPv6)), want: "both: 192.0.2.1 2001:db8::1"},
			{request: request("b", families(IPv6, IPv4)), want: "both: 2001:db8::2 192.0.2.2"},
		}},
		{"both families required, of one pool", []Pool{only4, only6}, []step{
			{request: request("a", families(IPv4, IPv6)), err: "no address left for the families [IPv4 IPv6]"},
		}},
		{"both families required, the second pool has them", []Pool{only4, auto("zz", "192.0.2.1/32", "2001:db8::1/128")}, []step{
			{request: request("a", families(IPv4, IPv6)), want: "zz: 192.0.2.1 2001:db8::1"},
		}},
		{"both preferred: the pool that has both", []Pool{only4, auto("zz", "192.0.2.1/32", "2001:db8::1/128")}, []step{
			{request: request("a", prefer(IPv4, IPv6)), want: "zz: 192.0.2.1 2001:db8::1"},
		}},
		{"both preferred: IPv4 where there is no more", []Pool{only4}, []step{
			{request: request("a", prefer(IPv6, IPv4)), want: "four: 198.51.100.0"},
		}},
		{"both preferred: IPv6 where there is no more", []Pool{only6}, []step{
			{request: request("a", prefer(IPv4, IPv6)), want: "six: 2001:db8:1::"},
		}},
		{"both preferred: one is kept after a restart", []Pool{only4}, []step{
			{request: request("a", prefer(IPv4, IPv6)), has: []string{"198.51.100.2"}, want: "four: 198.51.100.2"},
		}},
		{"both preferred: one family is used up", []Pool{auto("p", "192.0.2.1/32", "2001:db8::/126")}, []step{
			{request: request("a"), want: "p: 192.0.2.1"},
			{request: request("b", prefer(IPv4, IPv6)), want: "p: 2001:db8::"},
		}},
		{"addresses that some routers can't use are left out", []Pool{careful}, []step{
			{request: request("a"), want: "careful: 192.0.3.1"},
			{request: request("b"), err: "no address left"},
			{request: request("c", asking("192.0.3.0")), err: "no pool has 192.0.3.0"},
		}},
		{"a pool that gives nothing unasked", []Pool{manual}, []step{
			{request: request("a"), err: "see autoAssign"},
			{request: request("b", fromPool("manual")), want: "manual: 203.0.113.0"},
			{request: request("c", asking("203.0.113.9")), want: "manual: 203.0.113.9"},
		}},
		{"an address that is asked for", []Pool{both}, []step{
			{request: request("a", asking("192.0.2.3")), want: "both: 192.0.2.3"},
			{request: request("b", asking("192.0.2.3")), err: "192.0.2.3 is the address of Service default/a"},
			{request: request("c", asking("192.0.9.9")), err: "no pool has 192.0.9.9"},
			{request: request("d", asking("2001:db8::1")), err: "the Service has [IPv4]"},
		}},
		{"two addresses that are asked for", []Pool{both, only6}, []step{
			{request: request("a", families(IPv6, IPv4), asking("192.0.2.3", "2001:db8::3")), want: "both: 2001:db8::3 192.0.2.3"},
			{request: request("b", families(IPv4, IPv6), asking("192.0.2.2")), err: "not of all of the Service's families"},
			{request: request("c", families(IPv4, IPv6), asking("192.0.2.2", "192.0.2.4")), err: "more than one IPv4 address"},
			{request: request("d", families(IPv4, IPv6), asking("192.0.2.2", "2001:db8:1::1")), err: "no pool has 192.0.2.2, 2001:db8:1::1"},
		}},
		{"an address and a pool that are asked for", []Pool{both, manual}, []step{
			{request: request("a", asking("192.0.2.2"), fromPool("both")), want: "both: 192.0.2.2"},
			{request: request("b", asking("192.0.2.3"), fromPool("manual")), err: `is of pool "both", the Service asks for pool "manual"`},
			{request: request("c", fromPool("nobody")), err: `unknown pool "nobody"`},
		}},
		{"another address is asked for later", []Pool{both}, []step{
			{request: request("a"), want: "both: 192.0.2.1"},
			{request: request("a", asking("192.0.2.4")), want: "both: 192.0.2.4", lost: "it asks for [192.0.2.4] now"},
			{request: request("b"), want: "both: 192.0.2.1"},
		}},
		{"another pool is asked for later", []Pool{both, manual}, []step{
			{request: request("a"), want: "both: 192.0.2.1"},
			{request: request("a", fromPool("manual")), want: "manual: 203.0.113.0", lost: `asks for pool "manual"`},
		}},
		{"another family later", []Pool{both}, []step{
			{request: request("a"), want: "both: 192.0.2.1"},
			{request: request("a", families(IPv6)), want: "both: 2001:db8::1", lost: "the Service has [IPv6]"},
		}},
		{"what a status says is kept", []Pool{both}, []step{
			{request: request("a"), has: []string{"192.0.2.3"}, want: "both: 192.0.2.3"},
			{request: request("b"), has: []string{"192.0.2.3"}, want: "both: 192.0.2.1", lost: "is the address of Service default/a"},
			{request: request("c"), has: []string{"192.0.7.7"}, want: "both: 192.0.2.2", lost: "no pool has 192.0.7.7"},
		}},
		{"what a status says counts once only", []Pool{both}, []step{
			{request: request("a"), want: "both: 192.0.2.1"},
			{request: request("a"), has: []string{"192.0.2.4"}, want: "both: 192.0.2.1"},
		}},
		{"a pool for namespaces comes first", []Pool{auto("all", "10.0.0.0/24"), ofTeam}, []step{
			{request: request("a", in("team")), want: "team: 10.1.0.0"},
			{request: request("a"), want: "all: 10.0.0.0"},
		}},
		{"a pool for namespaces only", []Pool{ofTeam}, []step{
			{request: request("a"), err: "see autoAssign and serviceAllocation"},
			{request: request("b", fromPool("team")), err: "is not for this Service"},
			{request: request("c", asking("10.1.0.5")), err: "is not for this Service"},
		}},
		{"priorities", []Pool{ofTeam, second, first, auto("all", "10.0.0.0/24")}, []step{
			{request: request("a", in("team")), want: "first: 10.2.0.0"},
			{request: request("b", in("team")), want: "second: 10.3.0.0"},
		}},
		{"no priority is the last", []Pool{ofTeam, second}, []step{
			{request: request("a", in("team")), want: "second: 10.3.0.0"},
		}},
		{"namespaces by label", []Pool{byLabel}, []step{
			{request: request("a", inLabeled(labels.Set{"env": "prod"})), want: "bylabel: 10.4.0.0"},
			{request: request("b", inLabeled(labels.Set{"env": "test"})), err: "see autoAssign"},
		}},
		{"Services by label", []Pool{byService}, []step{
			{request: request("a", labeled(labels.Set{"app": "web"})), want: "byservice: 10.5.0.0"},
			{request: request("b"), err: "see autoAssign"},
		}},
		{"namespaces and Services by label: both must match", []Pool{byBoth}, []step{
			{request: request("a", in("team"), labeled(labels.Set{"app": "web"})), want: "byboth: 10.6.0.0"},
			{request: request("b", in("team")), err: "see autoAssign"},
			{request: request("c", labeled(labels.Set{"app": "web"})), err: "see autoAssign"},
		}},
		{"a namespace that matches no more", []Pool{byLabel, auto("all", "10.0.0.0/24")}, []step{
			{request: request("a", inLabeled(labels.Set{"env": "prod"})), want: "bylabel: 10.4.0.0"},
			{request: request("a", inLabeled(labels.Set{"env": "test"})), want: "all: 10.0.0.0", lost: "is not for this Service"},
		}},
		{"sharing by key", []Pool{both}, []step{
			{request: request("a", sharing("k")), want: "both: 192.0.2.1"},
			{request: request("b", sharing("k"), on(443)), want: "both: 192.0.2.1"},
			{request: request("c", sharing("k"), on(443)), want: "both: 192.0.2.2"},
			{request: request("d", sharing("other"), on(8080)), want: "both: 192.0.2.3"},
			{request: request("e", on(8080)), want: "both: 192.0.2.4"},
		}},
		{"sharing an address that is asked for", []Pool{both}, []step{
			{request: request("a", sharing("k"), asking("192.0.2.2")), want: "both: 192.0.2.2"},
			{request: request("b", sharing("k"), asking("192.0.2.2")), err: "both have port 80/TCP"},
			{request: request("c", sharing("x"), on(443), asking("192.0.2.2")), err: `sharing key is "k" and not "x"`},
			{request: request("d", on(443), asking("192.0.2.2")), err: "is the address of Service default/a"},
			{request: request("e", sharing("k"), on(443), asking("192.0.2.2")), want: "both: 192.0.2.2"},
		}},
		{"the same port of two protocols", []Pool{both}, []step{
			{request: request("a", sharing("k")), want: "both: 192.0.2.1"},
			{request: request("b", sharing("k"), func(r *Request) { r.Ports = []Port{{"UDP", 80}} }), want: "both: 192.0.2.1"},
		}},
		{"sharing with local endpoints only", []Pool{both}, []step{
			{request: request("a", sharing("k"), local("app=web"), asking("192.0.2.1")), want: "both: 192.0.2.1"},
			{request: request("b", sharing("k"), on(443), asking("192.0.2.1")), err: "externalTrafficPolicy: Local"},
			{request: request("c", sharing("k"), on(443), local("app=db"), asking("192.0.2.1")), err: "externalTrafficPolicy: Local"},
			{request: request("d", sharing("k"), on(443), local("app=web"), asking("192.0.2.1")), want: "both: 192.0.2.1"},
		}},
		{"sharing ends when the key does", []Pool{both}, []step{
			{request: request("a", sharing("k")), want: "both: 192.0.2.1"},
			{request: request("b", sharing("k"), on(443)), want: "both: 192.0.2.1"},
			{request: request("b", on(443)), want: "both: 192.0.2.2", lost: "is the address of Service default/a"},
		}},
		{"a shared address is free when the last one goes", []Pool{both}, []step{
			{request: request("a", sharing("k")), want: "both: 192.0.2.1"},
			{request: request("b", sharing("k"), on(443)), want: "both: 192.0.2.1"},
			{request: request("a"), free: true},
			{request: request("c"), want: "both: 192.0.2.2"},
			{request: request("b"), free: true},
			{request: request("d"), want: "both: 192.0.2.1"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := New()
			a.SetPools(test.pools)
			for i, s := range test.steps {
				s.check(t, a, fmt.Sprintf("step %d (%s)", i, s.request.Service.Name))
			}
		})
	}
}

func (s step) check(t *testing.T, a *Allocator, name string) {
	t.Helper()
	if s.free {
		if !a.Free(s.request.Service) || a.Free(s.request.Service) {
			t.Fatalf("%s: freed not exactly once", name)
		}
		return
	}
	got, lost, err := a.Ensure(s.request, addresses(s.has...))
	if !s.unwritten {
		a.Written(s.request.Service)
	}
	text := ""
	if err == nil {
		var list []string
		for _, address := range got.Addresses {
			list = append(list, address.String())
		}
		text = got.Pool + ": " + strings.Join(list, " ")
	}
	if text != s.want {
		t.Errorf("%s: got %q (%v), want %q", name, text, err, s.want)
	}
	for what, pair := range map[string][2]string{"lost": {fmt.Sprint(lost), s.lost}, "error": {fmt.Sprint(err), s.err}} {
		if pair[1] == "" && pair[0] != "<nil>" || !strings.Contains(pair[0], pair[1]) {
			t.Errorf("%s: %s is %q, want %q", name, what, pair[0], pair[1])
		}
	}
}

func TestPoolThatGoes(t *testing.T) {
	a := New()
	p := Pool{Name: "p", Ranges: ranges(t, "192.0.2.0/30"), AutoAssign: true}
	a.SetPools([]Pool{p})
	step{request: request("a"), want: "p: 192.0.2.0"}.check(t, a, "first")
	a.SetPools([]Pool{{Name: "q", Ranges: ranges(t, "198.51.100.0/30"), AutoAssign: true}})
	step{request: request("a"), want: "q: 198.51.100.0", lost: "no pool has 192.0.2.0"}.check(t, a, "pool replaced")
	a.SetPools(nil)
	step{request: request("a"), lost: "no pool has 198.51.100.0", err: "there are no pools"}.check(t, a, "no pool")
	if a.Free(request("a").Service) {
		t.Error("something was left to free")
	}
	p.Name = "renamed"
	a.SetPools([]Pool{p})
	step{request: request("a"), has: []string{"192.0.2.2"}, want: "renamed: 192.0.2.2"}.check(t, a, "pool renamed")
}

// ensure gives a Service what it is to have.
func ensure(t *testing.T, a *Allocator, r Request) {
	t.Helper()
	if _, _, err := a.Ensure(r, nil); err != nil {
		t.Fatal(err)
	}
}

// TestPoolMadeAgain: Services keep their addresses over the deletion of their pool, in whatever
// order they are looked at, and a new Service doesn't get one of theirs while another is left.
func TestPoolMadeAgain(t *testing.T) {
	a := New()
	p := Pool{Name: "p", Ranges: ranges(t, "192.0.2.0/30"), AutoAssign: true}
	a.SetPools([]Pool{p})
	for _, name := range []string{"a", "b", "c"} {
		ensure(t, a, request(name))
	}
	a.SetPools(nil)
	for _, name := range []string{"a", "b", "c"} {
		step{request: request(name), lost: "no pool has", err: "there are no pools"}.check(t, a, "no pool")
	}
	a.Forget(request("a").Service)
	a.SetPools([]Pool{p})
	step{request: request("new"), want: "p: 192.0.2.0"}.check(t, a, "the address of a Service that is gone")
	step{request: request("newer"), want: "p: 192.0.2.3"}.check(t, a, "the address that nobody had")
	step{request: request("c"), want: "p: 192.0.2.2"}.check(t, a, "as before")
	step{request: request("newest"), want: "p: 192.0.2.1"}.check(t, a, "nothing else is left")
	step{request: request("b"), err: "no address left"}.check(t, a, "another one has it")
	a.Free(request("newest").Service)
	step{request: request("b"), want: "p: 192.0.2.1"}.check(t, a, "free again")
	if len(a.last) > 0 || len(a.meant) > 0 {
		t.Errorf("%v and %v are kept for ever", a.last, a.meant)
	}
}

// TestMakesRoom: others are to be looked at when a Service gives a port of its address up, or
// shares in another way.
func TestMakesRoom(t *testing.T) {
	a := New()
	a.SetPools([]Pool{{Name: "p", Ranges: ranges(t, "192.0.2.0/32"), AutoAssign: true}})
	two := func(r *Request) { r.Ports = []Port{{"TCP", 80}, {"TCP", 443}} }
	ensure(t, a, request("a", sharing("k"), two))
	step{request: request("b", sharing("k"), on(443)), err: "no address left"}.check(t, a, "the port is taken")
	for what, c := range map[string]struct {
		request Request
		want    bool
	}{
		"the same":        {request("a", sharing("k"), two), false},
		"another Service": {request("b", sharing("k"), on(443)), false},
		"a port less":     {request("a", sharing("k"), on(80)), true},
		"another key":     {request("a", sharing("l"), two), true},
		"another policy":  {request("a", sharing("k"), two, local("x")), true},
	} {
		if got := a.MakesRoom(c.request); got != c.want {
			t.Errorf("%s: makes room: %t", what, got)
		}
	}
	ensure(t, a, request("a", sharing("k"), on(80)))
	step{request: request("b", sharing("k"), on(443)), want: "p: 192.0.2.0"}.check(t, a, "the port is free")
}

// TestPoolsThatChange: what a Service that prefers both families has, while pools get and lose
// families, and while it asks for other ones.
// TestNotBeforeWritten: nobody gets what a Service had before its status says that it has it no
// more, whether it gets another address or none; and the Service itself may have it again.
func TestNotBeforeWritten(t *testing.T) {
	a := New()
	a.SetPools([]Pool{{Name: "p", Ranges: ranges(t, "192.0.2.0/31"), AutoAssign: true}})
	ensure(t, a, request("a"))
	step{request: request("a", asking("192.0.2.1")), want: "p: 192.0.2.1", lost: "asks for", unwritten: true}.check(t, a, "it asks for another one")
	step{request: request("b"), err: "no address left"}.check(t, a, "the status still has it")
	step{request: request("b", asking("192.0.2.0")), err: "is the address of Service default/a"}.check(t, a, "asked for by name")
	step{request: request("a", asking("192.0.2.1")), want: "p: 192.0.2.1", unwritten: true}.check(t, a, "the write failed")
	step{request: request("b"), err: "no address left"}.check(t, a, "the status still has it")
	if !a.Written(request("a").Service) || a.Written(request("a").Service) {
		t.Error("it isn't written once")
	}
	step{request: request("b"), want: "p: 192.0.2.0"}.check(t, a, "it is written")
	a.Free(request("b").Service)
	step{request: request("a", asking("198.51.100.1")), lost: "asks for", err: "no pool has", unwritten: true}.check(t, a, "it gets nothing")
	step{request: request("b", asking("192.0.2.1")), err: "is the address of Service default/a"}.check(t, a, "the status still has it")
	step{request: request("a", asking("192.0.2.1")), want: "p: 192.0.2.1"}.check(t, a, "it has it again")
	a.Free(request("a").Service)
	if len(a.users) > 0 || len(a.leaving) > 0 {
		t.Errorf("%v and %v are kept for ever", a.users, a.leaving)
	}
}

func TestPoolsThatChange(t *testing.T) {
	pool := func(name string, texts ...string) Pool {
		return Pool{Name: name, Ranges: ranges(t, texts...), AutoAssign: true}
	}
	both := request("a", prefer(IPv4, IPv6))
	four := pool("p", "192.0.2.1/32")
	dual := pool("p", "192.0.2.1/32", "2001:db8::1/128")
	other := pool("q", "198.51.100.1/32", "2001:db8::9/128")
	for name, steps := range map[string][]struct {
		pools []Pool
		step  step
	}{
		"its pool gets the other family": {
			{[]Pool{four}, step{request: both, want: "p: 192.0.2.1"}},
			{[]Pool{dual}, step{request: both, has: []string{"192.0.2.1"}, want: "p: 192.0.2.1 2001:db8::1"}},
		},
		"another pool with both comes": {
			{[]Pool{four}, step{request: both, want: "p: 192.0.2.1"}},
			{[]Pool{four, other}, step{request: both, has: []string{"192.0.2.1"}, want: "p: 192.0.2.1"}},
		},
		"it requires both, and prefers them again": {
			{[]Pool{four}, step{request: both, want: "p: 192.0.2.1"}},
			{[]Pool{four}, step{request: request("a", families(IPv4, IPv6)), has: []string{"192.0.2.1"}, lost: "are not of all of the Service's families", err: "no address left for the families"}},
			{[]Pool{four}, step{request: both, want: "p: 192.0.2.1"}},
		},
		"its pool loses a family, another has both": {
			{[]Pool{dual, other}, step{request: both, want: "p: 192.0.2.1 2001:db8::1"}},
			{[]Pool{four, other}, step{request: both, has: []string{"192.0.2.1", "2001:db8::1"}, want: "q: 198.51.100.1 2001:db8::9", lost: "2001:db8::1"}},
		},
	} {
		a := New()
		for i, s := range steps {
			a.SetPools(s.pools)
			s.step.check(t, a, fmt.Sprint(name, ", step ", i))
		}
	}
}

func TestCounts(t *testing.T) {
	a := New()
	a.SetPools([]Pool{
		{Name: "p", Ranges: ranges(t, "192.0.2.0/24", "2001:db8::/64"), AutoAssign: true, AvoidBuggy: true},
		{Name: "q", Ranges: ranges(t, "198.51.100.1-198.51.100.10")},
	})
	for i, change := range [][]func(*Request){{}, {sharing("k")}, {sharing("k"), on(443)}, {families(IPv4, IPv6)}} {
		if _, _, err := a.Ensure(request(fmt.Sprint(i), change...), nil); err != nil {
			t.Fatal(err)
		}
	}
	want := Counts{AssignedIPv4: 3, AssignedIPv6: 1, AvailableIPv4: 251, AvailableIPv6: 1<<63 - 2}
	if got := a.Counts()["p"]; got != want {
		t.Errorf("pool p counts %+v, want %+v", got, want)
	}
	if got, want := a.Counts()["q"], (Counts{AvailableIPv4: 10}); got != want {
		t.Errorf("pool q counts %+v, want %+v", got, want)
	}
}

// A pool that is almost full is searched from its lowest free address, not from
// its beginning each time: otherwise filling a /16 would not end.
func TestManyAddresses(t *testing.T) {
	a := New()
	a.SetPools([]Pool{{Name: "p", Ranges: ranges(t, "10.0.0.0/16"), AutoAssign: true}})
	for i := range 1 << 16 {
		if _, _, err := a.Ensure(request(fmt.Sprint(i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	a.Free(request("77").Service)
	step{request: request("again"), want: "p: 10.0.0.77"}.check(t, a, "again")
}

func TestBuggyAddresses(t *testing.T) {
	for text, want := range map[string]int64{
		"192.0.2.0/24": 2, "192.0.2.10-192.0.2.20": 0, "192.0.2.250-192.0.3.5": 2, "2001:db8::/120": 0,
		"255.255.255.255/32": 1, "0.0.0.0-255.255.255.255": 1 << 25,
	} {
		if got := buggyIn(ranges(t, text)[0]); got != want {
			t.Errorf("%s has %d, want %d", text, got, want)
		}
	}
}
