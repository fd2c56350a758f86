package l2

import (
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// errDown is what sockets say of an interface that is down.
var errDown error = unix.ENETDOWN

// Counts are figures of all links. The zero value is ready.
type Counts struct {
	mu        sync.Mutex
	addresses map[netip.Addr]AddressCounts
	problems  Problems
}

// AddressCounts are figures of one address.
type AddressCounts struct{ Requests, Responses, Gratuitous uint64 }

// Problems are figures of what went wrong.
type Problems struct {
	Failed uint64 // frames that could not be sent
}

// Addresses returns the figures by address.
func (c *Counts) Addresses() map[netip.Addr]AddressCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make(map[netip.Addr]AddressCounts, len(c.addresses))
	for a, n := range c.addresses {
		list[a] = n
	}
	return list
}

// Problems returns the figures of what went wrong.
func (c *Counts) Problems() Problems {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problems
}

func (c *Counts) add(a netip.Addr, add func(*AddressCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.addresses == nil {
		c.addresses = map[netip.Addr]AddressCounts{}
	}
	n := c.addresses[a]
	add(&n)
	c.addresses[a] = n
}

func (c *Counts) request(a netip.Addr)    { c.add(a, func(n *AddressCounts) { n.Requests++ }) }
func (c *Counts) response(a netip.Addr)   { c.add(a, func(n *AddressCounts) { n.Responses++ }) }
func (c *Counts) gratuitous(a netip.Addr) { c.add(a, func(n *AddressCounts) { n.Gratuitous++ }) }

func (c *Counts) failed() {
	c.mu.Lock()
	c.problems.Failed++
	c.mu.Unlock()
}
