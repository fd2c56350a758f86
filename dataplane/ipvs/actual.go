package ipvs

import (
	"fmt"
	"net/netip"
	"slices"

	mobyipvs "github.com/moby/ipvs"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// actual is what the kernel holds of the plane's.
type actual struct {
	sets      map[setID]*ipset.Listing
	addresses map[netip.Addr]bool
	servers   map[lvs.ServerID]*actualServer
}

// actualServer is a virtual server as the kernel has it.
type actualServer struct {
	handle       *mobyipvs.Service
	service      lvs.Service
	destinations []lvs.Destination
}

// readKernel reads all that is the plane's: made by this process, an earlier
// one, or kube-proxy. Virtual servers of others are left out.
func (p *Plane) readKernel(settings *model.Settings) (*actual, error) {
	a := &actual{sets: map[setID]*ipset.Listing{}, addresses: map[netip.Addr]bool{}, servers: map[lvs.ServerID]*actualServer{}}
	for _, id := range append(allSets(false), allSets(true)...) {
		l, err := p.sets.List(id.name())
		if err != nil {
			return nil, err
		}
		if l != nil {
			a.sets[id] = l
		}
	}
	there, err := p.dummy.find()
	if err != nil {
		return nil, err
	}
	if there {
		if a.addresses, err = p.dummy.addresses(); err != nil {
			return nil, err
		}
	}
	return a, p.readServers(a, settings)
}

// empty reports whether there is nothing of the plane's.
func (a *actual) empty() bool { return len(a.sets)+len(a.addresses)+len(a.servers) == 0 }

func (p *Plane) readServers(a *actual, settings *model.Settings) error {
	found, err := p.balancer.GetServices()
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", err)
	}
	for _, m := range found {
		id, s, ok := lvs.FromService(m)
		if !ok || !a.owns(id, settings, p.options.IPVS.Exclude) {
			continue
		}
		list, _, err := lvs.ReadDestinations(p.balancer, m)
		if err != nil {
			return fmt.Errorf("list destinations of virtual server %s: %w", id, err)
		}
		a.servers[id] = &actualServer{m, s, list}
	}
	return nil
}

// owns tells the plane's virtual servers from others': by their mark, or
// because their address is one of kube-ipvs0 or of the Services' ranges, or
// because a set has their key, or one of NodePorts their port. In ranges that
// are others' (kube-proxy's excludeCIDRs), only a set's word counts.
func (a *actual) owns(id lvs.ServerID, settings *model.Settings, others []netip.Prefix) bool {
	if id.Mark != 0 {
		return id.Mark&markRangeMask == markRange
	}
	addr := id.Key.Addr
	if slices.Contains(settings.Exempt, addr) {
		return false
	}
	excluded := slices.ContainsFunc(others, func(p netip.Prefix) bool { return p.Contains(addr) })
	if !excluded && (a.addresses[addr] || reserved(settings, addr)) {
		return true
	}
	key := keyElement(id.Key)
	holders := map[setKind]ipset.Element{setClusterIP: key, setLoadBalancer: key, setExternalIP: key, setExternalIPLocal: key, setFromNode: key}
	switch id.Key.Proto {
	case model.TCP:
		holders[setNodePortTCP] = ipset.Element{Port: id.Key.Port}
	case model.UDP:
		holders[setNodePortUDP] = ipset.Element{Port: id.Key.Port}
	default:
		holders[setNodePortSCTP] = key
	}
	for kind, e := range holders {
		if l := a.sets[setID{kind, id.IPv6}]; l != nil && l.Has(e) {
			return true
		}
	}
	return false
}

// reserved reports whether an address is of the Services' ranges.
func reserved(settings *model.Settings, a netip.Addr) bool {
	return slices.ContainsFunc(settings.Reserved, func(r netip.Prefix) bool { return r.Contains(a) })
}

// temporary is the name of a set while it is exchanged for another.
func temporary(name string) string { return name[:min(len(name), 27)] + "-NEW" }

// compare turns a plan for an empty kernel into one for the kernel as it is,
// and makes the sets and the interface, without which nothing else goes.
func (p *Plane) compare(plan *plan, next *state, settings *model.Settings) error {
	if err := p.dummy.ensure(); err != nil {
		return err
	}
	a, err := p.readKernel(settings)
	if err != nil {
		return err
	}
	for _, id := range append(allSets(false), allSets(true)...) {
		if err := p.compareSet(plan, id, a.sets[id]); err != nil {
			return err
		}
	}
	plan.unbind = map[netip.Addr]bool{}
	for addr := range a.addresses {
		if plan.bind[addr] {
			delete(plan.bind, addr)
		} else {
			plan.unbind[addr] = true
		}
	}
	p.compareServers(plan, a)
	return nil
}

func (p *Plane) compareSet(plan *plan, id setID, l *ipset.Listing) error {
	switch {
	case l == nil:
		return p.sets.Create(id.of(), id.name())
	case !l.Fits(id.of()):
		return p.exchangeSet(plan, id)
	}
	want := plan.puts[id]
	for _, e := range l.Elements {
		if m, wanted := want[e.Element]; !wanted {
			if plan.removes[id] == nil {
				plan.removes[id] = map[ipset.Element]ipset.Mark{}
			}
			plan.removes[id][e.Element] = e.Mark
		} else if m == e.Mark {
			delete(want, e.Element)
		}
	}
	return nil
}

// exchangeSet puts a set of the right kind, filled, in the place of one of
// another size that kube-proxy made, in one step, while rules refer to it.
func (p *Plane) exchangeSet(plan *plan, id setID) error {
	name := temporary(id.name())
	if err := p.sets.Destroy(name); err != nil {
		return err
	}
	if err := p.sets.Create(id.of(), name); err != nil {
		return err
	}
	if err := p.sets.Add(id.of(), name, elements(plan.puts[id])); err != nil {
		return err
	}
	if err := p.sets.Swap(id.name(), name); err != nil {
		return err
	}
	delete(plan.puts, id)
	return p.sets.Destroy(name)
}

// compareServers also takes over destinations that take no new connections and
// that the table doesn't list: an earlier process left them to end.
func (p *Plane) compareServers(plan *plan, a *actual) {
	p.services = map[lvs.ServerID]lvs.Service{}
	for id, there := range a.servers {
		p.services[id] = there.service
		planned := plan.servers[id]
		if planned == nil {
			plan.server(id).del = true
			continue
		}
		planned.add = false
		planned.DestinationChanges = lvs.CompareDestinations(there.destinations, planned.DestinationChanges.Add)
	}
}
