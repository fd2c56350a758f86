// Package allocator decides which addresses Services of type LoadBalancer have:
// pools in, Services in, addresses out. It is pure: it knows no API and writes
// nothing. What it decides is what MetalLB's controller would, with one
// difference: a Service that may share an address prefers to.
//
//	pool.go       pools, and which Services they are for
//	buggy.go      addresses that some routers can't use
//	request.go    what a Service asks for
//	allocator.go  giving, keeping and freeing addresses
//	sharing.go    several Services on one address
package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/internal/iprange"
)

// Allocator knows who has which address. It may be used by several goroutines.
type Allocator struct {
	mu      sync.Mutex
	pools   map[string]*Pool
	holders map[types.NamespacedName]*holder
	users   map[netip.Addr][]*holder     // of each address that is in use
	free    map[iprange.Range]netip.Addr // the lowest address of each range that may be unused
	// last are the addresses that Services had, and that their pool has no more: a pool that is
	// deleted may be made again. Meant is which Service such an address is meant for.
	last  map[types.NamespacedName][]netip.Addr
	meant map[netip.Addr]types.NamespacedName
	// leaving are addresses that Services are to have no more, and that their status may still say.
	leaving map[types.NamespacedName]*holder
}

// holder is a Service with addresses.
type holder struct {
	request    Request
	assignment Assignment
}

// New returns an allocator without pools.
func New() *Allocator {
	return &Allocator{
		pools:   map[string]*Pool{},
		holders: map[types.NamespacedName]*holder{},
		users:   map[netip.Addr][]*holder{},
		free:    map[iprange.Range]netip.Addr{},
		last:    map[types.NamespacedName][]netip.Addr{},
		meant:   map[netip.Addr]types.NamespacedName{},
		leaving: map[types.NamespacedName]*holder{},
	}
}

// SetPools replaces the pools. What Services have stays with them until Ensure
// is called for them again.
func (a *Allocator) SetPools(pools []Pool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools = make(map[string]*Pool, len(pools))
	a.free = map[iprange.Range]netip.Addr{}
	for _, p := range pools {
		p.Ranges = slices.Clone(p.Ranges)
		sortRanges(p.Ranges)
		a.pools[p.Name] = &p
	}
}

// Ensure returns what the Service is to have: what it has, if it may keep that,
// and else something new. Has is what the Service's status says; it counts only
// if the allocator knows of nothing. Lost, if not nil, is why the Service can't
// keep what it had, which nobody else gets before Written says that the status no longer has it;
// err is why it gets nothing.
func (a *Allocator) Ensure(r Request, has []netip.Addr) (got Assignment, lost, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.leaving[r.Service]
	if before != nil {
		a.unseat(before)
	}
	h := a.holders[r.Service]
	if h != nil {
		has = h.assignment.Addresses
		a.release(h)
	}
	defer func() {
		if h == nil && lost != nil {
			h = &holder{r, Assignment{Addresses: slices.DeleteFunc(slices.Clone(has), a.isUsed)}}
		}
		a.leave(r.Service, before, h, got)
	}()
	if len(has) > 0 {
		if got, lost = a.keep(&r, has); lost == nil {
			got = a.complete(&r, got)
			a.hold(r, got)
			return got, nil, nil
		}
		if a.poolOf(has) == nil {
			a.remember(r.Service, has)
		}
	}
	if got, err = a.again(&r); err != nil {
		return Assignment{}, lost, err
	}
	a.hold(r, got)
	return got, lost, nil
}

// leave keeps others from what a Service had and is to have no more.
func (a *Allocator) leave(service types.NamespacedName, before, h *holder, got Assignment) {
	delete(a.leaving, service)
	gone := &holder{}
	for _, had := range []*holder{before, h} {
		if had == nil {
			continue
		}
		gone.request = had.request
		for _, address := range had.assignment.Addresses {
			if !slices.Contains(got.Addresses, address) && !slices.Contains(gone.assignment.Addresses, address) {
				gone.assignment.Addresses = append(gone.assignment.Addresses, address)
			}
		}
	}
	if len(gone.assignment.Addresses) > 0 {
		a.leaving[service] = gone
		a.seat(gone)
	}
}

// Written notes that a Service's status says what the Service has, and reports whether others may
// get something by that.
func (a *Allocator) Written(service types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.leaving[service]
	if h == nil {
		return false
	}
	delete(a.leaving, service)
	a.unseat(h)
	return true
}

func (a *Allocator) isUsed(address netip.Addr) bool { return len(a.users[address]) > 0 }

// again assigns what the Service had before its pool went, if it may have that, or else anything.
func (a *Allocator) again(r *Request) (Assignment, error) {
	if last := a.last[r.Service]; len(last) > 0 {
		if got, err := a.keep(r, last); err == nil {
			return got, nil
		}
	}
	return a.assign(r)
}

func (a *Allocator) remember(service types.NamespacedName, had []netip.Addr) {
	a.forget(service)
	a.last[service] = slices.Clone(had)
	for _, address := range had {
		a.meant[address] = service
	}
}

func (a *Allocator) forget(service types.NamespacedName) {
	for _, address := range a.last[service] {
		if a.meant[address] == service {
			delete(a.meant, address)
		}
	}
	delete(a.last, service)
}

// Forget forgets what a Service had that is gone for good.
func (a *Allocator) Forget(service types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget(service)
}

// MakesRoom reports whether others may get something of a Service's addresses once it asks as
// given: it has a port less, or shares in another way.
func (a *Allocator) MakesRoom(r Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.holders[r.Service]
	if h == nil {
		return false
	}
	before := &h.request
	return before.SharingKey != r.SharingKey || before.Backends != r.Backends ||
		slices.ContainsFunc(before.Ports, func(p Port) bool { return !slices.Contains(r.Ports, p) })
}

// Free takes a Service's addresses back and reports whether it had any.
func (a *Allocator) Free(service types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.holders[service]
	if h == nil {
		return false
	}
	a.release(h)
	return true
}

// Counts are a pool's addresses in use and unused.
type Counts struct{ AssignedIPv4, AssignedIPv6, AvailableIPv4, AvailableIPv6 int64 }

// Counts counts the addresses of all pools, by name. An address that is shared
// counts once.
func (a *Allocator) Counts() map[string]Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make(map[string]Counts, len(a.pools))
	for name, p := range a.pools {
		var c Counts
		c.AvailableIPv4, c.AvailableIPv6 = p.size()
		counts[name] = c
	}
	for address, users := range a.users {
		name := users[0].assignment.Pool
		c, ok := counts[name]
		if !ok || !a.pools[name].contains(address) {
			continue
		}
		if address.Is4() {
			c.AssignedIPv4, c.AvailableIPv4 = c.AssignedIPv4+1, c.AvailableIPv4-1
		} else {
			c.AssignedIPv6, c.AvailableIPv6 = c.AssignedIPv6+1, c.AvailableIPv6-1
		}
		counts[name] = c
	}
	return counts
}

// keep finds out whether the Service may go on with what it has.
func (a *Allocator) keep(r *Request, has []netip.Addr) (Assignment, error) {
	if err := r.fits(has); err != nil {
		return Assignment{}, err
	}
	if len(r.Addresses) > 0 && !sameAddresses(r.Addresses, has) {
		return Assignment{}, fmt.Errorf("it asks for %v now", r.Addresses)
	}
	return a.take(r, has)
}

// complete adds the family that a Service prefers to have and hasn't, if its pool has got one.
func (a *Allocator) complete(r *Request, has Assignment) Assignment {
	if !r.Prefer || len(r.Addresses) > 0 || len(has.Addresses) == len(r.Families) {
		return has
	}
	for _, address := range a.from(r, a.pools[has.Pool]) {
		if !slices.ContainsFunc(has.Addresses, func(h netip.Addr) bool { return familyOf(h) == familyOf(address) }) {
			has.Addresses = append(has.Addresses, address)
		}
	}
	has.Addresses = r.inOrder(has.Addresses)
	return has
}

// assign finds addresses for a Service that has none.
func (a *Allocator) assign(r *Request) (Assignment, error) {
	if len(r.Families) == 0 {
		return Assignment{}, errors.New("the Service has no IP family")
	}
	switch {
	case len(r.Addresses) > 0:
		if err := r.fits(r.Addresses); err != nil {
			return Assignment{}, fmt.Errorf("requested addresses: %w", err)
		}
		return a.take(r, r.Addresses)
	case r.Pool != "":
		pool := a.pools[r.Pool]
		if pool == nil {
			return Assignment{}, fmt.Errorf("unknown pool %q", r.Pool)
		}
		if !pool.isFor(r) {
			return Assignment{}, fmt.Errorf("pool %q is not for this Service: see its serviceAllocation", r.Pool)
		}
		return a.search(r, []*Pool{pool})
	}
	var candidates []*Pool
	for _, p := range a.pools {
		if p.AutoAssign && p.isFor(r) {
			candidates = append(candidates, p)
		}
	}
	if len(a.pools) == 0 {
		return Assignment{}, errors.New("there are no pools of addresses: create an IPAddressPool")
	}
	if len(candidates) == 0 {
		return Assignment{}, errors.New("no pool gives addresses to this Service unasked: see autoAssign and serviceAllocation of the pools")
	}
	order(candidates)
	return a.search(r, candidates)
}

// take assigns the addresses given, if one pool has them all and nobody who
// doesn't share has one.
func (a *Allocator) take(r *Request, addresses []netip.Addr) (Assignment, error) {
	pool := a.poolOf(addresses)
	if pool == nil {
		return Assignment{}, fmt.Errorf("no pool has %s", joined(addresses))
	}
	if r.Pool != "" && r.Pool != pool.Name {
		return Assignment{}, fmt.Errorf("%s is of pool %q, the Service asks for pool %q", joined(addresses), pool.Name, r.Pool)
	}
	if !pool.isFor(r) {
		return Assignment{}, fmt.Errorf("pool %q of %s is not for this Service: see its serviceAllocation", pool.Name, joined(addresses))
	}
	for _, address := range addresses {
		if err := a.maySit(r, address); err != nil {
			return Assignment{}, err
		}
	}
	return Assignment{Pool: pool.Name, Addresses: r.inOrder(addresses)}, nil
}

func (a *Allocator) poolOf(addresses []netip.Addr) *Pool {
	for _, p := range a.pools {
		if !slices.ContainsFunc(addresses, func(address netip.Addr) bool { return !p.contains(address) }) {
			return p
		}
	}
	return nil
}

// search tries pools in their order: all families of one pool first and, if the
// Service only prefers two, then the first pool that has either.
func (a *Allocator) search(r *Request, pools []*Pool) (Assignment, error) {
	for _, p := range pools {
		if got := a.from(r, p); len(got) == len(r.Families) {
			return Assignment{Pool: p.Name, Addresses: got}, nil
		}
	}
	if r.Prefer {
		for _, p := range pools {
			if got := a.from(r, p); len(got) > 0 {
				return Assignment{Pool: p.Name, Addresses: got}, nil
			}
		}
	}
	var names []string
	for _, p := range pools {
		names = append(names, p.Name)
	}
	return Assignment{}, fmt.Errorf("no address left for the families %v in the pools %q", r.Families, names)
}

// from returns an address of the pool for each family that it has one of.
func (a *Allocator) from(r *Request, p *Pool) []netip.Addr {
	var got []netip.Addr
	for _, f := range r.Families {
		if address, ok := a.shared(r, p, f); ok {
			got = append(got, address)
		} else if address, ok := a.unused(r.Service, p, f); ok {
			got = append(got, address)
		}
	}
	return got
}

// unused returns the pool's lowest address of the family that nobody has, and which isn't meant
// for another Service, if there is one.
func (a *Allocator) unused(service types.NamespacedName, p *Pool, f Family) (netip.Addr, bool) {
	lowest, ok := a.lowest(p, f)
	if !ok || a.isFree(service, lowest) {
		return lowest, ok
	}
	for _, r := range p.Ranges {
		if familyOf(r.From) != f {
			continue
		}
		for address := lowest; r.Contains(address); address = address.Next() {
			if len(a.users[address]) == 0 && !(p.AvoidBuggy && buggy(address)) && a.isFree(service, address) {
				return address, true
			}
		}
	}
	return lowest, ok
}

func (a *Allocator) isFree(service types.NamespacedName, address netip.Addr) bool {
	meant, is := a.meant[address]
	return !is || meant == service
}

// lowest is the pool's lowest address of the family that nobody has.
func (a *Allocator) lowest(p *Pool, f Family) (netip.Addr, bool) {
	for _, r := range p.Ranges {
		if familyOf(r.From) != f {
			continue
		}
		address, ok := a.free[r]
		if !ok {
			address = r.From
		}
		for r.Contains(address) && (len(a.users[address]) > 0 || p.AvoidBuggy && buggy(address)) {
			address = address.Next()
		}
		if r.Contains(address) {
			a.free[r] = address
			return address, true
		}
		a.free[r] = r.To
	}
	return netip.Addr{}, false
}

func (a *Allocator) hold(r Request, got Assignment) {
	a.forget(r.Service)
	h := &holder{request: r, assignment: got}
	a.holders[r.Service] = h
	a.seat(h)
}

func (a *Allocator) seat(h *holder) {
	for _, address := range h.assignment.Addresses {
		a.users[address] = append(a.users[address], h)
	}
}

func (a *Allocator) release(h *holder) {
	delete(a.holders, h.request.Service)
	a.unseat(h)
}

func (a *Allocator) unseat(h *holder) {
	for _, address := range h.assignment.Addresses {
		left := slices.DeleteFunc(a.users[address], func(u *holder) bool { return u == h })
		if len(left) > 0 {
			a.users[address] = left
			continue
		}
		delete(a.users, address)
		for r, lowest := range a.free {
			if r.Contains(address) && address.Less(lowest) {
				a.free[r] = address
			}
		}
	}
}

func sameAddresses(a, b []netip.Addr) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x netip.Addr) bool { return !slices.Contains(b, x) })
}

func joined(addresses []netip.Addr) string {
	text := ""
	for i, a := range addresses {
		if i > 0 {
			text += ", "
		}
		text += a.String()
	}
	return text
}

// Adopt takes in what a Service has according to its status, if it may have it.
// It is for the start, before Ensure gives the same addresses to others.
func (a *Allocator) Adopt(r Request, has []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if got, err := a.keep(&r, has); err == nil && a.holders[r.Service] == nil {
		a.hold(r, got)
	}
}

// Held is what a Service has; the zero value is nothing.
func (a *Allocator) Held(service types.NamespacedName) Assignment {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.holders[service]; h != nil {
		return h.assignment
	}
	return Assignment{}
}

// Knows reports whether a pool has the address.
func (a *Allocator) Knows(address netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.poolOf([]netip.Addr{address}) != nil
}
