package ipvs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// Kinds of objects.
const (
	kindChain   = "chain"   // "iptables nat KUBE-SERVICES": its rules
	kindJump    = "jump"    // "iptables nat PREROUTING KUBE-SERVICES"
	kindEntry   = "entry"   // "KUBE-CLUSTER-IP 10.96.0.1,tcp:443"
	kindAddress = "address" // of kube-ipvs0
	kindServer  = "server"  // "TCP 10.96.0.1:443": scheduler and destinations
)

// rendering is everything a table puts into the kernel, readable.
type rendering struct {
	plan     *plan
	choose   chooser
	settings *model.Settings
	options  kernel.Options
}

func render(t *model.Table, options kernel.Options) (*rendering, error) {
	options, err := complete(options)
	if err != nil {
		return nil, err
	}
	s := newState(options.MasqueradeMark)
	plan := s.move(t, sorted(t))
	for _, e := range reservedEntries(t.Settings) {
		plan.put(e, ipset.Mark{})
	}
	return &rendering{plan, newChooser(options), t.Settings, options}, nil
}

// Render says what the plane puts into the kernel for a table.
func Render(t *model.Table, options kernel.Options) ([]kernel.Object, error) {
	t = model.Expand(t)
	r, err := render(t, options)
	if err != nil {
		return nil, err
	}
	var objects []kernel.Object
	for _, f := range iptables.Families() {
		for _, table := range (ruleSet{f, t.Settings, r.options.MasqueradeMark}).tables() {
			objects = append(objects, ruleObjects(f, table)...)
		}
	}
	for id, entries := range r.plan.puts {
		for e, m := range entries {
			objects = append(objects, entryObject(id, e, m))
		}
	}
	for a := range r.plan.bind {
		objects = append(objects, kernel.Object{Kind: kindAddress, Name: a.String(), Text: Interface})
	}
	for id, sp := range r.plan.servers {
		s := r.choose.service(id, sp.pool, len(sp.pool.Draining) > 0)
		objects = append(objects, serverObject(id, s, sp.DestinationChanges.Add))
	}
	kernel.SortObjects(objects)
	return objects, nil
}

func ruleObjects(f iptables.Family, t ruleTable) []kernel.Object {
	var objects []kernel.Object
	prefix := f.Command() + " " + t.name + " "
	for _, c := range t.chains {
		objects = append(objects, kernel.Object{Kind: kindChain, Name: prefix + c.Name, Text: strings.Join(c.Rules, "\n")})
	}
	for _, j := range t.jumps {
		objects = append(objects, kernel.Object{Kind: kindJump, Name: prefix + j.from + " " + target(j.rule), Text: j.rule})
	}
	return objects
}

func entryObject(id setID, e ipset.Element, m ipset.Mark) kernel.Object {
	return kernel.Object{Kind: kindEntry, Name: id.name() + " " + e.Text(id.typ()), Text: m.Text()}
}

func serverObject(id lvs.ServerID, s lvs.Service, list []lvs.Destination) kernel.Object {
	text := s.Text()
	for _, d := range list {
		text += fmt.Sprintf("\n-> %s Masq %d", d.Addr, d.Weight)
	}
	return kernel.Object{Kind: kindServer, Name: id.String(), Text: text}
}

// objects reads back what the kernel holds, without what only waits for
// connections to end.
func (p *Plane) objects(ctx context.Context) ([]kernel.Object, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	settings := &model.Settings{}
	if p.state != nil {
		settings = p.state.table.Settings
	}
	a, err := p.readKernel(settings)
	if err != nil {
		return nil, err
	}
	var objects []kernel.Object
	hidden := p.hidden()
	for id, l := range a.sets {
		for _, e := range l.Elements {
			if hidden[entry{id, e.Element}] {
				continue
			}
			objects = append(objects, entryObject(id, e.Element, e.Mark))
		}
	}
	for addr := range a.addresses {
		if hidden[addressEntry(addr)] {
			continue
		}
		objects = append(objects, kernel.Object{Kind: kindAddress, Name: addr.String(), Text: Interface})
	}
	for id, there := range a.servers {
		if p.retired(id) {
			continue
		}
		list := slices.DeleteFunc(there.destinations, func(d lvs.Destination) bool {
			_, orphan := p.orphans[id][d.Addr]
			return orphan
		})
		objects = append(objects, serverObject(id, there.service, list))
	}
	for _, f := range iptables.Families() {
		rules, err := p.ruleObjects(ctx, f)
		if err != nil && (f == iptables.IPv4 || !kernel.IsMissing(err)) {
			return nil, err
		}
		objects = append(objects, rules...)
	}
	kernel.SortObjects(objects)
	return objects, nil
}

// hidden are the entries that keep retired servers, and no others.
func (p *Plane) hidden() map[entry]bool {
	hidden := map[entry]bool{}
	for id := range p.orphans {
		if id.Mark != 0 || !p.retired(id) {
			continue
		}
		for _, e := range refusals(id) {
			hidden[e] = true
		}
		if e := addressEntry(id.Key.Addr); p.state.shared[e] == 0 {
			hidden[e] = true
		}
	}
	return hidden
}

// ruleObjects reads the plane's chains and the jumps to them.
func (p *Plane) ruleObjects(ctx context.Context, f iptables.Family) ([]kernel.Object, error) {
	var objects []kernel.Object
	for _, ours := range (ruleSet{f, &model.Settings{}, p.options.MasqueradeMark}).tables() {
		actual, err := p.iptables.Save(ctx, f, ours.name)
		if err != nil {
			return nil, fmt.Errorf("read %s rules of table %s: %w", f, ours.name, err)
		}
		found := ours.in(actual)
		found.jumps = found.staleJumps(actual)
		objects = append(objects, ruleObjects(f, found)...)
	}
	return objects, nil
}
