package iptables

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// A cluster of many Services, for costs.

func offset(base string, n int) netip.Addr {
	a := netip.MustParseAddr(base).As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))
	return netip.AddrFrom4(a)
}

func clusterID(i int) model.PoolID {
	return model.PoolID{Name: fmt.Sprintf("ns-%d/service-%d:http", i%50, i), Proto: model.TCP}
}

func clusterPool(i, backends int) *model.Pool {
	p := &model.Pool{ID: clusterID(i)}
	for b := range backends {
		p.Backends = append(p.Backends, model.Backend{Addr: offset("10.128.0.0", i*backends+b), Port: 8080, Weight: 1})
	}
	return p
}

// cluster has n Services of so many backends; every tenth has a node port, on
// two addresses. Cluster IPs are spread over the range as an allocator does.
func cluster(n, backends int) *model.Table {
	r := rand.New(rand.NewPCG(1, 2))
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{
		Pods:      model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}},
		NodeAddrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")},
		Reserved:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	})
	taken := map[netip.Addr]bool{}
	for i := range n {
		e.SetPool(clusterPool(i, backends))
		addr := offset("10.96.0.0", r.IntN(1<<20))
		for taken[addr] {
			addr = offset("10.96.0.0", r.IntN(1<<20))
		}
		taken[addr] = true
		route := model.Route{Pool: clusterID(i)}
		masq := model.Route{Pool: clusterID(i), Masquerade: true}
		e.SetFrontend(&model.Frontend{
			Key: model.Key{Addr: addr, Port: 80, Proto: model.TCP}, Name: clusterID(i).Name, Routes: [3]model.Route{route, masq, masq},
		})
		if i%10 != 0 {
			continue
		}
		for _, a := range []string{"192.168.0.1", "192.168.0.2"} {
			e.SetFrontend(&model.Frontend{
				Key:  model.Key{Addr: netip.MustParseAddr(a), Port: uint16(30000 + i/10), Proto: model.TCP},
				Name: clusterID(i).Name, FrontendType: model.NodePort, Routes: [3]model.Route{masq, masq, masq},
			})
		}
	}
	return e.Table()
}

// withFewerBackends is the table after one endpoint of Service i is gone.
func withFewerBackends(t *model.Table, i int) *model.Table {
	p := *t.Pool(clusterID(i))
	p.Backends = p.Backends[1:]
	e := t.Edit()
	e.SetPool(&p)
	return e.Table()
}

// walk follows a packet through the chains of one table, from the named one,
// and returns the number of rules it is compared with and the last chain.
func (m mirror) walk(table, chain string, key model.Key) (rules int, last string) {
	for _, r := range m[chainID{table, chain}] {
		rules++
		if !matches(r, key) {
			continue
		}
		to := target(r)
		if strings.HasPrefix(to, poolChain) || strings.HasPrefix(to, entryChain) || !strings.HasPrefix(to, "KUBE-") {
			return rules, to
		}
		n, end := m.walk(table, to, key)
		rules += n
		if end != "" || strings.Contains(r, "-g ") {
			return rules, end
		}
	}
	return rules, ""
}

func matches(rule string, key model.Key) bool {
	words := strings.Fields(rule)
	for i, w := range words[:len(words)-1] {
		switch value := words[i+1]; w {
		case "-d":
			if !netip.MustParsePrefix(value).Contains(key.Addr) {
				return false
			}
		case "-p":
			if value != key.Proto.String() {
				return false
			}
		case "--dport":
			lo, hi, found := strings.Cut(value, ":")
			if !found {
				hi = lo
			}
			l, _ := strconv.Atoi(lo)
			h, _ := strconv.Atoi(hi)
			if int(key.Port) < l || int(key.Port) > h {
				return false
			}
		}
	}
	return true
}

func loaded(t *testing.T, table *model.Table) (*state, mirror) {
	t.Helper()
	s := newState(iptables.IPv4, defaultMark, table.Settings)
	s.load(table)
	m := mirror{}
	for id, c := range s.step() {
		m[id] = c.rules
	}
	return s, m
}

// TestWalkGrowsWithTheLogarithm counts the rules that packets pass.
func TestWalkGrowsWithTheLogarithm(t *testing.T) {
	for _, n := range []int{10, 100, 1000, 10000} {
		table := cluster(n, 2)
		_, m := loaded(t, table)
		most, total := 0, 0
		for f := range table.Frontends() {
			rules, last := m.walk("nat", servicesChain, f.Key)
			if !strings.HasPrefix(last, poolChain) && !strings.HasPrefix(last, entryChain) {
				t.Fatalf("%d Services: %s leads to %q", n, f.Key, last)
			}
			most, total = max(most, rules), total+rules
		}
		nothing := 0
		for _, addr := range []string{"10.128.3.4", "8.8.8.8", "192.168.0.9", "10.112.0.1", "172.16.0.1"} {
			for _, table := range []string{"nat", "filter"} {
				rules, last := m.walk(table, servicesChain, model.Key{Addr: netip.MustParseAddr(addr), Port: 80, Proto: model.TCP})
				if last != "" {
					t.Errorf("%d Services: %s leads to %s", n, addr, last)
				}
				nothing = max(nothing, rules)
			}
		}
		unserved, last := m.walk("filter", servicesChain, model.Key{Addr: netip.MustParseAddr("10.96.0.0"), Port: 1, Proto: model.TCP})
		if last != "REJECT" {
			t.Errorf("%d Services: an unserved address leads to %q", n, last)
		}
		t.Logf("%d Services: at most %d rules, %.1f in the middle; %d for other packets, %d for an unserved address",
			n, most, float64(total)/float64(table.NumFrontends()), nothing, unserved)
		if bound := 16 + 4*bits.Len(uint(n)); most > bound {
			t.Errorf("%d Services: a packet passes %d rules, want at most %d", n, most, bound)
		}
		if nothing > 20 {
			t.Errorf("%d Services: a packet to none of them passes %d rules, want at most 20", n, nothing)
		}
	}
}

// jumpDepth is how many chains deep a packet can get below a chain.
func (m mirror) jumpDepth(id chainID, seen map[chainID]int) int {
	if d, ok := seen[id]; ok {
		return d
	}
	depth := 0
	for _, r := range m[id] {
		if to := (chainID{id.table, target(r)}); m[to] != nil {
			depth = max(depth, 1+m.jumpDepth(to, seen))
		}
	}
	seen[id] = depth
	return depth
}

// TestJumpDepth holds chains against the 16 jumps that nf_tables follows
// (NFT_JUMP_STACK_SIZE), of which one leads to KUBE-SERVICES, also for
// addresses that are chosen to make the trie deep.
func TestJumpDepth(t *testing.T) {
	deep := cluster(0, 0).Edit()
	for i := range 32 {
		for j := range 32 {
			for proto, p := range protocols {
				id := model.PoolID{Name: fmt.Sprintf("deep/%d-%d:x", i, j), Proto: p}
				deep.SetPool(&model.Pool{ID: id, Backends: clusterPool(1, 1).Backends})
				key := model.Key{Addr: offset("0.0.0.0", 1<<i), Port: uint16(1 << (j % 16)), Proto: p}
				deep.SetFrontend(&model.Frontend{Key: key, Name: id.Name, FrontendType: model.FrontendType(proto), Routes: [3]model.Route{{Pool: id}, {Pool: id, Masquerade: true}, {Pool: id}}})
			}
		}
	}
	for name, table := range map[string]*model.Table{"many": cluster(20000, 1), "deep": deep.Table()} {
		_, m := loaded(t, table)
		seen := map[chainID]int{}
		for id := range m {
			if d := 1 + m.jumpDepth(id, seen); d > 15 {
				t.Errorf("%s: %d jumps below %s", name, d, id)
			}
		}
		t.Logf("%s: %d jumps below KUBE-SERVICES", name, seen[chainID{"nat", servicesChain}])
	}
}

// TestChangeTouchesFewChains counts the chains that changes rewrite.
func TestChangeTouchesFewChains(t *testing.T) {
	table := cluster(5000, 5)
	s, _ := loaded(t, table)
	count := func(next *model.Table) int {
		p := s.change(next, next.Since(table))
		table = next
		return len(p.refusals) + len(p.nat) + len(p.rest)
	}
	for i := range 100 {
		if n := count(withFewerBackends(table, i)); n != 2 {
			t.Errorf("an endpoint that goes rewrites %d chains, want its own and the Service's", n)
		}
	}
	r := rand.New(rand.NewPCG(3, 3))
	most, total := 0, 0
	for i := range 300 {
		e := table.Edit()
		id := clusterID(100000 + i)
		e.SetPool(&model.Pool{ID: id, Backends: clusterPool(i, 1).Backends, Affinity: time.Hour})
		e.SetFrontend(&model.Frontend{Key: model.Key{Addr: offset("10.96.0.0", r.IntN(1<<20)), Port: 81, Proto: model.TCP}, Name: id.Name, Routes: [3]model.Route{{Pool: id}, {Pool: id}, {Pool: id}}})
		n := count(e.Table())
		most, total = max(most, n), total+n
	}
	t.Logf("a new Service writes at most %d chains, %.2f in the middle", most, float64(total)/300)
	if most > 20 || total > 4*300 {
		t.Errorf("a new Service writes at most %d chains, %.2f in the middle; want 20 and 4", most, float64(total)/300)
	}
}
