package iptables

import (
	"bytes"
	"fmt"
	"strings"
)

// Table is one table as iptables-save prints it.
type Table struct {
	Name   string
	Chains []*Chain // in the order of the output
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

// Parse reads the output of iptables-save, or input for iptables-restore that
// only declares chains and appends rules.
func Parse(text []byte) ([]*Table, error) {
	var tables []*Table
	var table *Table
	for number, line := range bytes.Split(text, []byte("\n")) {
		line := strings.TrimSpace(string(line))
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '*':
			table = &Table{Name: line[1:]}
			tables = append(tables, table)
			continue
		case line == "COMMIT":
			table = nil
			continue
		case table == nil:
			return nil, fmt.Errorf("line %d: outside any table: %q", number+1, line)
		}
		if err := table.parse(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	return tables, nil
}

func (t *Table) parse(line string) error {
	if line[0] == ':' {
		fields := strings.Fields(line[1:])
		if len(fields) < 2 {
			return fmt.Errorf("no chain and policy: %q", line)
		}
		t.add(&Chain{Name: fields[0], Policy: fields[1]})
		return nil
	}
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
	chain := t.Chain(name)
	if chain == nil {
		return fmt.Errorf("rule of undeclared chain %q", name)
	}
	chain.Rules = append(chain.Rules, rule)
	return nil
}
