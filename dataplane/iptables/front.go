package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// verdict is what happens to an origin's packets at a frontend.
type verdict uint8

const (
	forward verdict = iota
	reject
	drop
)

// front is a frontend with what its pools say for each origin.
type front struct {
	*model.Frontend
	verdicts [model.NumOrigins]verdict
}

func verdictOf(p *model.Pool) verdict {
	switch {
	case len(p.Backends) > 0:
		return forward
	case p.Empty == model.Drop:
		return drop
	}
	return reject
}

// forwards reports whether any origin is led to a backend.
func (f *front) forwards() bool { return slices.Contains(f.verdicts[:], forward) }

// refuses reports whether any origin is not.
func (f *front) refuses() bool {
	return slices.ContainsFunc(f.verdicts[:], func(v verdict) bool { return v != forward })
}

// direct reports whether the rule for the frontend leads right to the pool's
// chain, as operators know it for cluster IPs. Its masquerading is done there.
func (f *front) direct() bool {
	return f.FrontendType == model.ClusterIP && f.Sources == nil && f.forwards() &&
		f.Routes[0].Pool == f.Routes[1].Pool && f.Routes[0].Pool == f.Routes[2].Pool
}

// masks has a bit for every origin that is masqueraded.
func (f *front) mask() int {
	mask := 0
	for o, r := range f.Routes {
		if r.Masquerade {
			mask |= 1 << o
		}
	}
	return mask
}

// same reports whether two origins are treated alike.
func (f *front) same(a, b model.Origin) bool {
	if f.verdicts[a] != forward || f.verdicts[b] != forward {
		return f.verdicts[a] != forward && f.verdicts[b] != forward
	}
	return f.Routes[a].Pool == f.Routes[b].Pool && f.Routes[a].Masquerade == f.Routes[b].Masquerade
}

// portID is a Service port: its frontends share chains.
type portID struct {
	name  string
	proto model.Protocol
}

func (f *front) port() portID { return portID{f.Name, f.Proto} }

// entry says what the frontend's entry chain has to contain.
func (f *front) entry() string {
	var b strings.Builder
	for o, r := range f.Routes {
		if f.verdicts[o] != forward {
			b.WriteString("- ")
			continue
		}
		fmt.Fprintf(&b, "%s %t ", poolName(r.Pool), r.Masquerade)
	}
	return b.String()
}

// sources says what the frontend's chain of allowed sources has to contain.
func (f *front) sources() string { return fmt.Sprint(f.entry(), f.Sources, f.refuses()) }

// port is what the frontends of a Service port need beside their own rules:
// chains that they share. There is one of each as a rule; if frontends differ,
// further ones get another name.
type port struct {
	id      portID
	fronts  []*front
	entries chains // by what they contain
	sources chains
}

// chains counts the users of chains that differ in content.
type chains map[string]*chain

type chain struct {
	users int
	front *front // one of them
}

// add makes the map when it is needed: most ports have no such chains.
func (c *chains) add(content string, f *front) {
	if *c == nil {
		*c = chains{}
	}
	if (*c)[content] == nil {
		(*c)[content] = &chain{}
	}
	(*c)[content].users++
	(*c)[content].front = f
}

func (c chains) remove(content string) {
	if c[content].users--; c[content].users == 0 {
		delete(c, content)
	}
}

// first is the content whose chain gets the well-known name.
func (c chains) first() string {
	first, found := "", false
	for content := range c {
		if !found || content < first {
			first, found = content, true
		}
	}
	return first
}

func (c chains) name(prefix string, id portID, content string) string {
	text := id.name + id.proto.String()
	if content != c.first() {
		text += " " + content
	}
	return prefix + hash16(text)
}

// names are those of all chains there are.
func (c chains) names(prefix string, id portID) []string {
	var names []string
	for content := range c {
		names = append(names, c.name(prefix, id, content))
	}
	return names
}

// target is the chain that the frontend's rule leads to.
func (p *port) target(f *front) string {
	if f.direct() {
		return poolName(f.Routes[0].Pool)
	}
	if f.Sources != nil {
		return p.sources.name(sourcesChain, p.id, f.sources())
	}
	return p.entries.name(entryChain, p.id, f.entry())
}
