package ipvs

import (
	"context"
	"errors"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Remove takes everything of this plane out of the kernel, and what kube-proxy
// left in its ipvs mode. No connection passes through this process.
func (p *Plane) Remove(ctx context.Context, _ kernel.Removal) error {
	problems := []error{migrate.Move(ctx, p.Connections(), nil)}
	p.mu.Lock()
	defer p.mu.Unlock()
	try := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	a, err := p.readKernel(&model.Settings{}) // what fails here failed in Move
	// Rules refer to sets and go before them. Where nothing of ours is, they
	// needn't be read, which is dear where another mode has many.
	if err != nil || !a.empty() || p.dummy.index != 0 {
		for _, f := range iptables.Families() {
			try(removeRules(ctx, ruleSet{f, &model.Settings{}, p.options.MasqueradeMark}))
		}
	}
	try(p.dummy.remove())
	for _, name := range allNames() {
		try(p.sets.Destroy(name))
	}
	try(p.settings.Restore())
	try(p.deadline.remove())
	return errors.Join(problems...)
}

// allNames are the names of all sets of the plane's and of kube-proxy's, and of those
// that hold packets up.
func allNames() []string {
	var names []string
	for _, ipv6 := range []bool{false, true} {
		for _, id := range allSets(ipv6) {
			names = append(names, id.name(), temporary(id.name()))
		}
		for _, name := range foreignSets {
			names = append(names, familyName(name, ipv6))
		}
		names = append(names, familyName(freezeSet, ipv6))
	}
	return names
}
