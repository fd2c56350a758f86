package allocator

import (
	"context"
	"fmt"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Allocator chooses cluster IPs and node ports for Services.
type Allocator struct {
	families  []corev1.IPFamily
	addresses map[corev1.IPFamily]*addresses
	ports     *ports
	decoder   runtime.Decoder
	owners    map[netip.Addr]types.NamespacedName // of addresses that nobody else gets
	done      chan struct{}
}

// New returns an allocator for one Service CIDR, or one of each family, and a
// range of node ports. The decoder reads Services as they are stored.
func New(cidrs []netip.Prefix, nodePortRange utilnet.PortRange, decoder runtime.Decoder) (*Allocator, error) {
	a := &Allocator{
		addresses: map[corev1.IPFamily]*addresses{},
		ports:     newPorts(nodePortRange),
		decoder:   decoder,
		owners:    map[netip.Addr]types.NamespacedName{},
		done:      make(chan struct{}),
	}
	for _, cidr := range cidrs {
		r, err := newAddresses(cidr)
		if err != nil {
			return nil, err
		}
		if a.addresses[r.family()] != nil {
			return nil, fmt.Errorf("service CIDRs %s and %s are of one family: give at most one of each", a.addresses[r.family()].prefix, cidr)
		}
		a.addresses[r.family()] = r
		a.families = append(a.families, r.family())
	}
	if len(a.families) == 0 {
		return nil, fmt.Errorf("no service CIDR given")
	}
	return a, nil
}

// Families returns the IP families of the Service CIDRs; the first is the
// cluster's default.
func (a *Allocator) Families() []corev1.IPFamily { return a.families }

// First returns the first address of the default family, which belongs to the
// API server's own Service.
func (a *Allocator) First() netip.Addr { return a.addresses[a.families[0]].first }

// Reserve keeps an address for one Service, also while that isn't there: others
// neither get it nor can ask for it. It must be called before the first request.
// An address outside all ranges is left alone.
func (a *Allocator) Reserve(addr netip.Addr, owner types.NamespacedName) {
	r := a.addresses[familyOf(addr)]
	if r == nil {
		return
	}
	if n, ok := r.number(addr); ok {
		a.owners[addr] = owner
		r.reserve(n)
	}
}

// Usage says how many addresses of each family and how many node ports are
// taken, and how many are reserved by writes under way.
func (a *Allocator) Usage() (taken map[string]int, reserved int) {
	taken = map[string]int{}
	for family, r := range a.addresses {
		t, res := r.counts()
		taken[string(family)] = t
		reserved += res
	}
	t, res := a.ports.counts()
	taken["nodePort"] = t
	return taken, reserved + res - len(a.owners)
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
