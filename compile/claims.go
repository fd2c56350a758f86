package compile

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// claim is a Service's wish for a key. The claims on one key are a list, best
// first; the first one has it.
type claim struct {
	svc     *service
	created int64
	front   *model.Frontend
	next    *claim
}

// rank orders entrances by how hard it is to get one for an address that is
// somebody else's: cluster IPs are allocated, node ports and load-balancer
// addresses are too but may meet, external IPs are only claimed. Without it a
// Service could take another's cluster IP by naming it as its external IP
// (CVE-2020-8554).
func rank(e model.FrontendType) int {
	switch e {
	case model.ClusterIP:
		return 0
	case model.NodePort, model.LoadBalancerIP:
		return 1
	}
	return 2
}

// before reports whether c has a better right than o: by kind of entrance, then
// the older Service, then the one with the lesser name.
func (c *claim) before(o *claim) bool {
	return cmp.Or(
		cmp.Compare(rank(c.front.FrontendType), rank(o.front.FrontendType)),
		cmp.Compare(c.created, o.created),
		cmp.Compare(c.svc.key.Namespace, o.svc.key.Namespace),
		cmp.Compare(c.svc.key.Name, o.svc.key.Name),
	) < 0
}

// setFrontends replaces what a Service claims. Frontends that say the same as
// before stay the same value.
func (c *Compiler) setFrontends(svc *service, list []*model.Frontend) {
	old := svc.frontends
	for i, j := 0, 0; i < len(old) || j < len(list); {
		switch {
		case j == len(list) || i < len(old) && old[i].Compare(list[j].Key) < 0:
			c.reclaim(svc, old[i], nil)
			i++
		case i == len(old) || old[i].Compare(list[j].Key) > 0:
			c.reclaim(svc, nil, list[j])
			j++
		default:
			if old[i].Equal(list[j]) {
				list[j] = old[i]
			}
			c.reclaim(svc, old[i], list[j])
			i, j = i+1, j+1
		}
	}
	svc.frontends = list
}

// reclaim withdraws a Service's claim to a key and makes another; either may be
// nil. The table gets whatever the best claim is then.
func (c *Compiler) reclaim(svc *service, old, front *model.Frontend) {
	var key model.Key
	if front != nil {
		key = front.Key
	} else {
		key = old.Key
	}
	keys := c.overlapping(key)
	for _, k := range keys {
		c.markConflictedAll(k)
	}
	head := c.claims[key]
	if old != nil {
		head = head.without(svc)
	}
	if front != nil {
		head = head.with(&claim{svc: svc, created: svc.spec.created, front: front})
	}
	if head == nil {
		delete(c.claims, key)
	} else {
		c.claims[key] = head
	}
	for _, k := range keys {
		c.markConflictedAll(k)
		c.settle(k)
	}
}

// overlapping are a key and, of a node port, the claimed keys of single
// addresses at which it answers.
func (c *Compiler) overlapping(key model.Key) []model.Key {
	keys := []model.Key{key}
	if key.IsNodePort() {
		for _, a := range c.nodePortAddrs {
			if k := key.At(a); a.Is6() == key.Addr.Is6() && c.claims[k] != nil {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// portClaims are the claims to the node port that a single address's key is
// among; nil if there are none.
func (c *Compiler) portClaims(key model.Key) *claim {
	if _, answers := slices.BinarySearchFunc(c.nodePortAddrs, key.Addr, netip.Addr.Compare); !answers {
		return nil
	}
	return c.claims[model.NodePortKey(key.Addr.Is6(), key.Port, key.Proto)]
}

// winner is the best claim to a key; nil if there is none. For an address at
// which node ports answer, that may be a node port's.
func (c *Compiler) winner(key model.Key) *claim {
	head, port := c.claims[key], c.portClaims(key)
	if head == nil || port != nil && port.before(head) {
		return port
	}
	return head
}

// settle gives a key in the table to the best claim. If that is a node port's,
// no frontend of a single address may stand before it.
func (c *Compiler) settle(key model.Key) {
	had := c.table.Frontend(key)
	if c.edit != nil {
		had = c.edit.Frontend(key)
	}
	best := c.winner(key)
	switch {
	case best == nil || best.front.Key != key:
		if had != nil {
			c.change().DeleteFrontend(key)
		}
	case best.front != had:
		c.change().SetFrontend(best.front)
	}
}

// markConflictedAll marks everybody who claims a key, if there is more than one.
func (c *Compiler) markConflictedAll(key model.Key) {
	head, port := c.claims[key], c.portClaims(key)
	if head == nil || head.next == nil && port == nil {
		return
	}
	for _, list := range []*claim{head, port} {
		for ; list != nil; list = list.next {
			c.markConflicted(list.svc)
		}
	}
}

// with returns the list with a claim in its place.
func (head *claim) with(n *claim) *claim {
	if head == nil || n.before(head) {
		n.next = head
		return n
	}
	head.next = head.next.with(n)
	return head
}

// without returns the list without the claim of a Service.
func (head *claim) without(svc *service) *claim {
	switch {
	case head == nil:
		return nil
	case head.svc == svc:
		return head.next
	}
	head.next = head.next.without(svc)
	return head
}
