package ipvs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// restoreInput is what makes a table that holds actual hold these rules. Only
// chains that differ are written; with a nil actual, all are.
func (want ruleTable) restoreInput(in *iptables.Input, actual *iptables.Table) {
	block := in.Block(want.name)
	for _, c := range want.chains {
		if there := actual.Chain(c.Name); there == nil || !slices.Equal(there.Rules, c.Rules) {
			block.Chain(c.Name, c.Rules...)
		}
	}
	for _, j := range want.staleJumps(actual) {
		block.DeleteRule(j.from, j.rule)
	}
	misplaced := want.misplacedJumps(actual)
	for _, j := range misplaced {
		if builtin := actual.Chain(j.from); builtin != nil && slices.Contains(builtin.Rules, j.rule) {
			block.DeleteRule(j.from, j.rule)
		}
	}
	for _, j := range slices.Backward(misplaced) {
		block.Insert(j.from, j.rule)
	}
	for _, name := range foreignChains[want.name] {
		if actual.Chain(name) != nil && !want.has(name) {
			block.DeleteChain(name)
		}
	}
}

func (want ruleTable) has(chain string) bool {
	return slices.ContainsFunc(want.chains, func(c iptables.Chain) bool { return c.Name == chain })
}

// misplacedJumps are all those of a chain of the kernel's where one is missing or
// comes before another one that it must follow: who isn't let in must be dropped
// before anybody is refused. Others' rules may be between them.
func (want ruleTable) misplacedJumps(actual *iptables.Table) []jump {
	wanted, there := map[string][]string{}, map[string][]string{}
	for _, j := range want.jumps {
		wanted[j.from] = append(wanted[j.from], j.rule)
	}
	for from, rules := range wanted {
		if c := actual.Chain(from); c != nil {
			for _, rule := range c.Rules {
				if slices.Contains(rules, rule) && !slices.Contains(there[from], rule) {
					there[from] = append(there[from], rule)
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(want.jumps), func(j jump) bool { return slices.Equal(wanted[j.from], there[j.from]) })
}

// staleJumps are rules of chains that are not ours which lead to chains of
// ours or of kube-proxy's ipvs mode and aren't wanted: kube-proxy's, or doubles.
func (want ruleTable) staleJumps(actual *iptables.Table) []jump {
	var stale []jump
	for _, c := range actual.Chains {
		if want.has(c.Name) || slices.Contains(foreignChains[want.name], c.Name) {
			continue
		}
		seen := map[string]bool{}
		for _, rule := range c.Rules {
			target := target(rule)
			if !want.has(target) && !slices.Contains(foreignChains[want.name], target) {
				continue
			}
			if !slices.Contains(want.jumps, jump{c.Name, rule}) || seen[rule] {
				stale = append(stale, jump{c.Name, rule})
			}
			seen[rule] = true
		}
	}
	return stale
}

// target is where a rule leads.
func target(rule string) string {
	fields := strings.Fields(rule)
	for i, field := range fields[:max(len(fields)-1, 0)] {
		if field == "-j" || field == "-g" {
			return fields[i+1]
		}
	}
	return ""
}

// sharedChains are those that the iptables mode has by the same names. They are
// the ipvs mode's if their rules are over ipsets.
var sharedChains = []string{chainServices, chainPostrouting, chainForward, chainFirewall}

// in is what of the table's chains is there, without what is the iptables
// mode's and without jumps, so that all jumps there are count as stale.
func (want ruleTable) in(actual *iptables.Table) ruleTable {
	found := ruleTable{name: want.name}
	for _, c := range actual.Chains {
		if want.has(c.Name) && (!slices.Contains(sharedChains, c.Name) || overSets(c)) {
			found.chains = append(found.chains, *c)
		}
	}
	if actual.Chain(chainServices) != nil && !found.has(chainServices) {
		// The iptables mode's chains go on needing it.
		found.chains = slices.DeleteFunc(found.chains, func(c iptables.Chain) bool { return c.Name == chainMarkMasq })
	}
	return found
}

func overSets(c *iptables.Chain) bool {
	return slices.ContainsFunc(c.Rules, func(rule string) bool { return strings.Contains(rule, "--match-set KUBE-") })
}

// iptablesMode reports whether Services are the iptables mode's at present.
func (p *Plane) iptablesMode(ctx context.Context) (bool, error) {
	nat, err := p.iptables.Save(ctx, iptables.IPv4, "nat")
	if err != nil {
		return false, fmt.Errorf("read rules of table nat: %w", err)
	}
	c := nat.Chain(chainServices)
	return c != nil && len(c.Rules) > 0 && !overSets(c), nil
}

// takeOver ends the refusals of the iptables mode, which knows of no packets to
// Services that it has not translated.
func (p *Plane) takeOver(ctx context.Context, f iptables.Family) error {
	filter, err := p.iptables.Save(ctx, f, "filter")
	if err != nil {
		return fmt.Errorf("read %s rules of table filter: %w", f, err)
	}
	in := &iptables.Input{}
	block := in.Block("filter")
	for _, c := range filter.Chains {
		for _, rule := range c.Rules {
			if c.Policy != "-" && slices.Contains([]string{chainServices, "KUBE-EXTERNAL-SERVICES", "KUBE-RESERVED"}, target(rule)) {
				block.DeleteRule(c.Name, rule)
			}
		}
	}
	if in.Empty() {
		return nil
	}
	if err := p.iptables.Restore(ctx, f, in.Bytes()); err != nil {
		return fmt.Errorf("take over from the iptables mode: %w", err)
	}
	return nil
}

// syncRules makes one family's rules what these tables say.
func (p *Plane) syncRules(ctx context.Context, f iptables.Family, tables []ruleTable) error {
	in := &iptables.Input{}
	for _, want := range tables {
		actual, err := p.iptables.Save(ctx, f, want.name)
		if err != nil {
			return fmt.Errorf("read %s rules of table %s: %w", f, want.name, err)
		}
		want.restoreInput(in, actual)
	}
	if in.Empty() {
		return nil
	}
	if err := p.iptables.Restore(ctx, f, in.Bytes()); err != nil {
		return fmt.Errorf("write %s rules: %w", f, err)
	}
	return nil
}

// removeRules takes the plane's chains away, and those of kube-proxy's ipvs
// mode, from both variants of iptables.
func removeRules(ctx context.Context, rules ruleSet) error {
	var problems []error
	for _, v := range iptables.Variants() {
		tool, err := iptables.Open(ctx, v)
		if err == nil {
			err = removeRulesOf(ctx, tool, rules)
		}
		if err != nil && !kernel.IsAbsent(err) { // what can't be read can't be there
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// clearOthers removes the rules of the other variant of iptables, once those of this
// one are complete: an earlier process, or kube-proxy, went by that one.
func (p *Plane) clearOthers(ctx context.Context) error {
	for _, v := range iptables.Variants() {
		if p.alone || v == p.iptables.Variant() {
			continue
		}
		other, err := iptables.Open(ctx, v)
		if kernel.IsAbsent(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range iptables.Families() {
			err := removeRulesOf(ctx, other, ruleSet{f, &model.Settings{}, p.options.MasqueradeMark})
			if err != nil && !kernel.IsAbsent(err) { // what can't be read can't be there
				return err
			}
		}
	}
	p.alone = true
	return nil
}

func removeRulesOf(ctx context.Context, tool *iptables.Tool, rules ruleSet) error {
	in := &iptables.Input{}
	for _, ours := range rules.tables() {
		actual, err := tool.Save(ctx, rules.family, ours.name)
		if err != nil {
			return fmt.Errorf("read %s rules of table %s: %w", rules.family, ours.name, err)
		}
		ours = ours.in(actual)
		block := in.Block(ours.name)
		for _, j := range ours.staleJumps(actual) {
			block.DeleteRule(j.from, j.rule)
		}
		for _, c := range actual.Chains {
			if ours.has(c.Name) || slices.Contains(foreignChains[ours.name], c.Name) {
				block.DeleteChain(c.Name)
			}
		}
	}
	if in.Empty() {
		return nil
	}
	if err := tool.Restore(ctx, rules.family, in.Bytes()); err != nil {
		return fmt.Errorf("remove %s rules: %w", rules.family, err)
	}
	return nil
}
