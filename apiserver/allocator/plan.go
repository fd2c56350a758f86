package allocator

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The reasons for which a number is refused, in Kubernetes' words.
var (
	ErrIPAllocated   = errors.New("provided IP is already allocated")
	ErrPortAllocated = errors.New("provided port is already allocated")
	ErrFull          = errors.New("range is full")
)

// Plan holds the reservations of one request until it has succeeded or
// failed. The claims themselves are made by the write.
type Plan struct {
	allocator *Allocator
	held      []reservation
}

type reservation struct {
	pool *pool
	n    uint64
}

// Plan starts an empty plan. Release must be called in the end, whatever
// became of the request.
func (a *Allocator) Plan() *Plan { return &Plan{allocator: a} }

// Release gives up the plan's reservations.
func (p *Plan) Release() {
	for _, h := range p.held {
		h.pool.release(h.n)
	}
	p.held = nil
}

// ClusterIP chooses an address of a family, from the first range that has one.
func (p *Plan) ClusterIP(family corev1.IPFamily) (string, error) {
	ranges := p.allocator.rangesOf(family)
	if len(ranges) == 0 {
		return "", noRange(family)
	}
	for _, r := range ranges {
		if !r.open.Load() {
			continue
		}
		n, ok := r.next()
		if !ok {
			continue
		}
		p.held = append(p.held, reservation{r.pool, n})
		addr := r.address(n)
		p.hold(addr, r)
		return addr.String(), nil
	}
	return "", ErrFull
}

// RequestClusterIP reserves an address that a Service asks for. An error says
// that it looks taken, or can't be had at all.
func (p *Plan) RequestClusterIP(ip string, service types.NamespacedName) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Errorf("parse IP: %w", err)
	}
	ranges := p.allocator.rangesOf(familyOf(addr))
	if len(ranges) == 0 {
		return noRange(familyOf(addr))
	}
	if !isOpen(p.allocator.containing(addr)) {
		return fmt.Errorf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, openOnes(ranges))
	}
	free := p.hold(addr, nil)
	if owner, kept := p.allocator.owners[addr]; kept && owner != service {
		if !free { // said as of any other
			return errors.New(ErrIPAllocated.Error())
		}
		return fmt.Errorf("it is kept for Service %s", owner)
	}
	if !free {
		return ErrIPAllocated
	}
	return nil
}

// hold reserves an address in all ranges that have it, but for one, and says
// whether it looks free in them.
func (p *Plan) hold(addr netip.Addr, except *addresses) bool {
	free := true
	for _, r := range p.allocator.containing(addr) {
		if r == except {
			continue
		}
		n, _ := r.number(addr)
		free = r.reserve(n) && free
		p.held = append(p.held, reservation{r.pool, n})
	}
	return free
}

func noRange(family corev1.IPFamily) error {
	return fmt.Errorf("no Service CIDR of family %s is configured", family)
}

// NodePort chooses a node port.
func (p *Plan) NodePort() (int32, error) {
	r := p.allocator.ports
	n, ok := r.next()
	if !ok {
		return 0, ErrFull
	}
	p.held = append(p.held, reservation{r.pool, n})
	return r.port(n), nil
}

// RequestNodePort reserves a node port that was asked for.
func (p *Plan) RequestNodePort(port int32) error {
	r := p.allocator.ports
	n, ok := r.number(port)
	if !ok {
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", r.all.String())
	}
	free := r.reserve(n)
	p.held = append(p.held, reservation{r.pool, n})
	if !free {
		return ErrPortAllocated
	}
	return nil
}
