package allocator

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Allocator chooses cluster IPs and node ports for Services.
type Allocator struct {
	families []corev1.IPFamily // of the server's own ranges
	ports    *ports
	decoder  runtime.Decoder
	owners   map[netip.Addr]types.NamespacedName // of addresses that nobody else gets
	done     chan struct{}
	relist   chan chan struct{}

	mu     sync.RWMutex
	ranges []*addresses // the server's own first
}

// New returns an allocator for one Service CIDR, or one of each family, and a
// range of node ports. The decoder reads Services as they are stored.
func New(cidrs []netip.Prefix, nodePortRange utilnet.PortRange, decoder runtime.Decoder) (*Allocator, error) {
	a := &Allocator{
		ports:   newPorts(nodePortRange),
		decoder: decoder,
		owners:  map[netip.Addr]types.NamespacedName{},
		done:    make(chan struct{}),
		relist:  make(chan chan struct{}),
	}
	for _, cidr := range cidrs {
		r, err := newAddresses(cidr)
		if err != nil {
			return nil, err
		}
		if other := a.rangesOf(r.family()); len(other) > 0 {
			return nil, fmt.Errorf("service CIDRs %s and %s are of one family: give at most one of each", other[0].prefix, cidr)
		}
		r.own = true
		r.open.Store(true)
		a.ranges = append(a.ranges, r)
		a.families = append(a.families, r.family())
	}
	if len(a.families) == 0 {
		return nil, fmt.Errorf("no service CIDR given")
	}
	return a, nil
}

// First returns the first address of the default family, which belongs to the
// API server's own Service.
func (a *Allocator) First() netip.Addr { return a.rangesOf(a.families[0])[0].first }

// Reserve keeps an address for one Service, also while that isn't there: others
// neither get it nor can ask for it. It must be called before the first request.
// An address outside all ranges is left alone.
func (a *Allocator) Reserve(addr netip.Addr, owner types.NamespacedName) {
	for _, r := range a.containing(addr) {
		n, _ := r.number(addr)
		r.reserve(n)
		a.owners[addr] = owner
	}
}

// Usage says how many addresses of each family and how many node ports are
// taken, and how many are reserved by writes under way. An address of two ranges
// counts in both.
func (a *Allocator) Usage() (taken map[string]int, reserved int) {
	taken = map[string]int{}
	for _, family := range a.Families() {
		for _, r := range a.rangesOf(family) {
			t, res := r.counts()
			taken[string(family)] += t
			reserved += res - len(a.ownedIn(r))
		}
	}
	t, res := a.ports.counts()
	taken["nodePort"] = t
	return taken, reserved + res
}

// Start learns what is taken, repairs what disagrees with the Services
// stored, and keeps learning until the context ends.
func (a *Allocator) Start(ctx context.Context, client *clientv3.Client) error {
	if err := a.audit(ctx, client); err != nil {
		return err
	}
	revision, err := a.load(ctx, client)
	if err != nil {
		return err
	}
	go a.follow(ctx, client, revision)
	return nil
}

// Wait returns when the goroutine that Start left has ended.
func (a *Allocator) Wait() { <-a.done }
