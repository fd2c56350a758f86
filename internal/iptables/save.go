package iptables

import (
	"bytes"
	"fmt"
	"strings"
)

// Table is one table as iptables-save prints it.
type Table struct {
	Name   string
	Chains []*Chain // in no particular order
	byName map[string]*Chain
}

// Chain is one chain with its rules.
type Chain struct {
	Name   string
	Policy string   // "ACCEPT" or "DROP" for a chain of the kernel's, "-" for others
	Rules  []string // without "-A NAME "
}

// Chain returns the chain with this name, or nil.
func (t *Table) Chain(name string) *Chain { return t.byName[name] }

func (t *Table) add(c *Chain) {
	if t.byName == nil {
		t.byName = map[string]*Chain{}
	}
	t.byName[c.Name] = c
	t.Chains = append(t.Chains, c)
}

// parser reads the output of iptables-save line by line: for each table its
// chains, then their rules, those of a chain one after the other. It hands each
// chain on as soon as it is complete.
type parser struct {
	visit   func(table string, c *Chain)
	table   string            // "" outside of any
	waiting map[string]*Chain // declared, no rule was seen yet
	current *Chain
	number  int
	err     error // the first
}

// line takes in a line. Those after one that isn't understood are ignored.
func (p *parser) line(text []byte) {
	p.number++
	if p.err != nil {
		return
	}
	if err := p.parse(bytes.TrimSpace(text)); err != nil {
		p.err = fmt.Errorf("line %d: %w", p.number, err)
	}
}

func (p *parser) parse(line []byte) error {
	switch {
	case len(line) == 0 || line[0] == '#':
		return nil
	case line[0] == '*':
		p.complete()
		p.table, p.waiting = string(line[1:]), map[string]*Chain{}
		return nil
	case string(line) == "COMMIT":
		p.complete()
		return nil
	case p.table == "":
		return fmt.Errorf("outside any table: %q", line)
	case line[0] == ':':
		return p.declare(string(line[1:]))
	}
	return p.rule(string(line))
}

func (p *parser) declare(line string) error {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return fmt.Errorf("no chain and policy: %q", line)
	}
	name := strings.Clone(fields[0])
	p.waiting[name] = &Chain{Name: name, Policy: strings.Clone(fields[1])}
	return nil
}

func (p *parser) rule(line string) error {
	if strings.HasPrefix(line, "[") { // counters, with iptables-save -c
		if _, rest, ok := strings.Cut(line, "] "); ok {
			line = rest
		}
	}
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return fmt.Errorf("neither a chain nor a rule: %q", line)
	}
	name, rule, _ := strings.Cut(rest, " ")
	if p.current == nil || p.current.Name != name {
		next := p.waiting[name]
		if next == nil {
			return fmt.Errorf("rule of chain %q, which wasn't declared or was over", name)
		}
		p.pass()
		p.current = next
		delete(p.waiting, name)
	}
	p.current.Rules = append(p.current.Rules, rule)
	return nil
}

// pass hands the chain on whose rules are read.
func (p *parser) pass() {
	if p.current != nil {
		p.visit(p.table, p.current)
		p.current = nil
	}
}

// complete hands on what is left of a table: chains without rules.
func (p *parser) complete() {
	p.pass()
	for _, c := range p.waiting {
		p.visit(p.table, c)
	}
	p.table, p.waiting = "", nil
}

// end tells what went wrong, if anything did.
func (p *parser) end() error {
	if p.err == nil && p.table != "" {
		return fmt.Errorf("line %d: table %s doesn't end", p.number, p.table)
	}
	return p.err
}
