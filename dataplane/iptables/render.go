package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Render says what Apply would install: our chains, and the jumps to them from
// the kernel's.
func Render(t *model.Table, o kernel.Options) ([]kernel.Object, error) {
	t = model.Expand(t)
	var objects []kernel.Object
	for _, f := range iptables.Families() {
		s := newState(f, mark(o), t.Settings)
		s.load(t)
		for id, c := range s.step() {
			objects = append(objects, chainObject(f, id, c.rules))
		}
		for _, j := range jumps() {
			objects = append(objects, jumpObject(f, j))
		}
	}
	kernel.SortObjects(objects)
	return objects, nil
}

// objects reads back what the kernel holds.
func (p *Plane) objects(ctx context.Context) ([]kernel.Object, error) {
	var objects []kernel.Object
	for _, f := range iptables.Families() {
		if f == iptables.IPv6 && p.noIPv6 != nil {
			continue
		}
		for _, table := range tables {
			err := p.tool.Walk(ctx, f, table, func(chain *iptables.Chain) {
				if ours(chain.Name) {
					objects = append(objects, chainObject(f, chainID{table, chain.Name}, chain.Rules))
				}
				for _, j := range jumpsTo(table, []*iptables.Chain{chain}, ours) {
					objects = append(objects, jumpObject(f, j))
				}
			})
			if err != nil {
				return nil, fmt.Errorf("read table %s: %w", table, err)
			}
		}
	}
	kernel.SortObjects(objects)
	return objects, nil
}

func chainObject(f iptables.Family, id chainID, rules []string) kernel.Object {
	return kernel.Object{Kind: "chain", Name: f.Command() + " " + id.table + " " + id.name, Text: strings.Join(rules, "\n")}
}

// jumpObject is named by where it leads from and to, and when: two of the jumps
// in INPUT lead to chains of the same name.
func jumpObject(f iptables.Family, j jump) kernel.Object {
	return kernel.Object{Kind: "jump", Name: f.Command() + " " + j.table + " " + j.chain + " " + target(j.rule), Text: j.rule}
}

// Script is input for iptables-restore --noflush and ip6tables-restore
// --noflush that installs the same on a machine without any of it.
func Script(t *model.Table, o kernel.Options) (map[string]string, error) {
	t = model.Expand(t)
	files := map[string]string{}
	for _, f := range iptables.Families() {
		s := newState(f, mark(o), t.Settings)
		plan := s.replace(t, nil)
		plan.jumps = jumps()
		files[f.Command()+".rules"] = string(slices.Concat(plan.inputs(iptables.Legacy)...))
	}
	return files, nil
}
