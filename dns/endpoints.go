package dns

import (
	"iter"
	"net/netip"
	"slices"
	"sync"
)

// replaceSlice puts a slice in the place of the one of that name; nil removes
// it.
func (x *Index) replaceSlice(svc *service, name string, next *slice) {
	x.changes++
	x.withdrawHosts(svc)
	i := slices.IndexFunc(svc.slices, func(s *slice) bool { return s.name == name })
	if i >= 0 {
		for _, c := range svc.slices[i].clients {
			x.removeClient(c)
		}
		svc.slices = slices.Delete(svc.slices, i, i+1)
	}
	if next != nil {
		for _, c := range next.clients {
			x.addClient(c)
		}
		svc.slices = append(svc.slices, next)
	}
	svc.names = &hostnames{}
	x.publishHosts(svc)
}

// ready goes through the endpoints that a headless Service's name leads to.
func (svc *service) ready() iter.Seq2[*slice, *endpoint] {
	return func(yield func(*slice, *endpoint) bool) {
		for _, s := range svc.slices {
			for i := range s.endpoints {
				e := &s.endpoints[i]
				if (e.ready || svc.live.unready) && !yield(s, e) {
					return
				}
			}
		}
	}
}

// publishHosts makes the reverse records of a headless Service's hostnames.
func (x *Index) publishHosts(svc *service) {
	if svc.live == nil || svc.live.kind != headless {
		return
	}
	for _, e := range svc.ready() {
		if e.hostname == "" {
			continue
		}
		h := host{svc.key, e.hostname}
		if !slices.Contains(x.hosts[e.address], h) {
			x.hosts[e.address] = append(x.hosts[e.address], h)
		}
	}
}

func (x *Index) withdrawHosts(svc *service) {
	if svc.live == nil || svc.live.kind != headless {
		return
	}
	for _, e := range svc.ready() {
		if e.hostname == "" {
			continue
		}
		h := host{svc.key, e.hostname}
		left := slices.DeleteFunc(x.hosts[e.address], func(o host) bool { return o == h })
		if len(left) == 0 {
			delete(x.hosts, e.address)
		} else {
			x.hosts[e.address] = left
		}
	}
}

// hostnames are the addresses of a Service's endpoints by name: made when first
// asked for, since most are never asked for.
type hostnames struct {
	once   sync.Once
	byName map[string][]netip.Addr
}

func (svc *service) named(name string) []netip.Addr {
	n := svc.names
	n.once.Do(func() {
		n.byName = map[string][]netip.Addr{}
		for _, e := range svc.ready() {
			name := e.name()
			if !slices.Contains(n.byName[name], e.address) {
				n.byName[name] = append(n.byName[name], e.address)
			}
		}
	})
	return n.byName[name]
}
