package nftables

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Render says what the plane would put into the kernel for a table: see
// dataplane.Kind.
func Render(t *model.Table, options kernel.Options) ([]kernel.Object, error) {
	t = model.Expand(t)
	target := build(t, options, nil, 1)
	list := []kernel.Object{{Kind: "table", Name: "inet " + tableName, Text: tableComment}}
	for _, s := range sets {
		list = append(list, setObject(s))
	}
	for i := range target.chains {
		c := &target.chains[i]
		list = append(list, kernel.Object{Kind: "chain", Name: c.name, Text: c.text()})
	}
	list = append(list, elementObjects(target.elementList())...)
	kernel.SortObjects(list)
	return list, nil
}

// objects reads back what the kernel holds: see dataplane.Plane. Chains that
// the last pool of their size has left behind stay for the next one, until a
// comparison removes them; they are not listed.
func (p *Plane) objects(ctx context.Context) ([]kernel.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := p.socket.read()
	if err != nil || !c.present {
		return nil, err
	}
	list := []kernel.Object{{Kind: "table", Name: "inet " + tableName, Text: c.comment}}
	for name, found := range c.sets {
		if found.ours != nil {
			list = append(list, setObject(found.ours))
		} else {
			list = append(list, kernel.Object{Kind: "set", Name: name, Text: "not fairway's"})
		}
	}
	elements, used := c.inUse()
	for name, found := range c.chains {
		if text, dynamic := found.describe(name); !dynamic || used[name] {
			list = append(list, kernel.Object{Kind: "chain", Name: name, Text: text})
		}
	}
	list = append(list, elementObjects(elements)...)
	kernel.SortObjects(list)
	return list, nil
}

// inUse gives the elements without those that lead to chains which pools came
// to need and no pool needs now, and the names of the chains they lead to.
func (c *contents) inUse() (elements []element, used map[string]bool) {
	needed := map[string]bool{}
	for _, s := range []*set{pools, fresh} {
		for _, e := range c.elements[s.name] {
			needed[e.data] = true
		}
	}
	for _, e := range c.elements[learn.name] {
		needed[e.data] = true
	}
	used = map[string]bool{}
	for _, bySet := range c.elements {
		for _, e := range bySet {
			if e.set.isVerdictMap() && !needed[e.key] {
				if _, dynamic := chainNamed(e.verdict.chain); dynamic {
					continue
				}
			}
			elements = append(elements, e)
			used[e.verdict.chain] = true
		}
	}
	return elements, used
}

func setObject(s *set) kernel.Object {
	return kernel.Object{Kind: s.kind(), Name: s.name, Text: strings.Join(s.body(), "\n")}
}

// describe gives the chain in nft's language, as far as its rules are ours,
// and whether it is one of those that pools come to need.
func (c *foundChain) describe(name string) (text string, dynamic bool) {
	want, dynamic := chainNamed(name)
	if want == nil {
		want = &chain{name: name}
	}
	var lines []string
	if want.hook != nil && c.matches(want) {
		lines = (&chain{hook: want.hook}).body()
	} else if c.hook != nil {
		lines = append(lines, fmt.Sprintf("type %s hook %d priority %d", c.hook.typ, c.hook.number, c.hook.priority))
	}
	for i, r := range c.rules {
		lines = append(lines, r.describe(want, i))
	}
	return strings.Join(lines, "\n"), dynamic
}

// describe gives the i-th rule of a chain in nft's language if it is one of
// ours, or else the names of its expressions.
func (r *foundRule) describe(want *chain, i int) string {
	if i < len(want.rules) && want.rules[i].equal(*r) {
		return want.rules[i].text
	}
	for _, w := range want.rules {
		if w.equal(*r) {
			return w.text
		}
	}
	var names []string
	for _, e := range r.exprs {
		name, _ := splitExpression(e)
		names = append(names, name)
	}
	return "not fairway's: " + strings.Join(names, " ")
}

// chainNamed is the chain with this name, and whether it is one of those that
// pools come to need.
func chainNamed(name string) (c *chain, dynamic bool) {
	fixed := fixedChains()
	for i := range fixed {
		if fixed[i].name == name {
			return &fixed[i], false
		}
	}
	for _, c := range bytesChains() {
		if c.name == name {
			return &c, false
		}
	}
	var seconds int
	if n, err := fmt.Sscanf(name, "learn-%ds", &seconds); n == 1 && err == nil && seconds > 0 {
		l := learner(time.Duration(seconds) * time.Second)
		return &l, l.name == name
	}
	base, _, _ := cutLast(name, "-")
	_, digits, _ := cutLast(base, "-")
	slots, err := strconv.Atoi(digits)
	if err != nil || slots < 1 || slots > maxBackends {
		return nil, false
	}
	for _, f := range families {
		for _, p := range protocols {
			for _, way := range []uint32{random, source, destination} {
				if !strings.HasPrefix(name, choice(way, p, f, slots).String()+"-") {
					continue
				}
				for _, c := range choice(way, p, f, slots).chains() {
					if c.name == name {
						return &c, true
					}
				}
			}
		}
	}
	return nil, false
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
