package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// String gives the whole table as text, one thing a line and in a fixed order:
// for people, golden files and bug reports. It sorts the table; don't call it
// on every change.
func (t *Table) String() string {
	var b strings.Builder
	t.Settings.text(&b)
	for _, f := range t.SortedFrontends() {
		f.text(&b)
	}
	for _, p := range t.SortedPools() {
		p.text(&b)
	}
	return b.String()
}

func (s *Settings) text(b *strings.Builder) {
	list(b, "pods from", s.Pods.Prefixes)
	list(b, "pods through", s.Pods.Interfaces)
	list(b, "node", s.NodeAddrs)
	list(b, "node ports at", s.NodePortAddrs)
	list(b, "reserved", s.Reserved)
	list(b, "exempt", s.Exempt)
}

func list[T any](b *strings.Builder, title string, items []T) {
	if len(items) == 0 {
		return
	}
	b.WriteString(title)
	for _, item := range items {
		fmt.Fprintf(b, " %v", item)
	}
	b.WriteByte('\n')
}

func (f *Frontend) text(b *strings.Builder) {
	fmt.Fprintf(b, "frontend %s %s (%s)\n", f.Key, f.Name, f.FrontendType)
	if f.Sources != nil {
		fmt.Fprintf(b, "  sources%s\n", prefixes(f.Sources))
	}
	if f.Routes[FromPod] == f.Routes[FromNode] && f.Routes[FromNode] == f.Routes[FromOutside] {
		fmt.Fprintf(b, "  all -> %s\n", f.Routes[FromPod])
		return
	}
	for o, r := range f.Routes {
		fmt.Fprintf(b, "  %s -> %s\n", Origin(o), r)
	}
}

func prefixes(list []netip.Prefix) string {
	if len(list) == 0 {
		return " none"
	}
	var b strings.Builder
	for _, p := range list {
		b.WriteByte(' ')
		b.WriteString(p.String())
	}
	return b.String()
}

// String gives the route as "default/web:http/tcp masqueraded"; "direct" stands
// for masqueraded where there is no direct server return.
func (r Route) String() string {
	switch {
	case r.Stable:
		return r.Pool.String() + " direct, stable"
	case r.Direct:
		return r.Pool.String() + " direct"
	case r.Masquerade:
		return r.Pool.String() + " masqueraded"
	}
	return r.Pool.String()
}

func (p *Pool) text(b *strings.Builder) {
	fmt.Fprintf(b, "pool %s", p.ID)
	if len(p.Backends) == 0 {
		fmt.Fprintf(b, " %s", p.Empty)
	}
	if p.Affinity != 0 {
		fmt.Fprintf(b, " affinity=%s", p.Affinity)
	}
	if p.Scheduler != DefaultScheduler {
		fmt.Fprintf(b, " scheduler=%s", p.Scheduler)
	}
	if p.Stable {
		b.WriteString(" stable")
	}
	switch p.Orphans {
	case OrphansReset:
		b.WriteString(" orphans=reset")
	case OrphansDeadline:
		fmt.Fprintf(b, " orphans=%s", p.OrphanDeadline)
	}
	b.WriteByte('\n')
	for _, e := range p.Backends {
		fmt.Fprintf(b, "  backend %s%s\n", e.AddrPort(), e.text())
	}
	for _, e := range p.Draining {
		fmt.Fprintf(b, "  draining %s%s\n", e.AddrPort(), e.text())
	}
}

func (b Backend) text() string {
	s := ""
	if b.Local {
		s = " local"
	}
	if b.Weight != 1 {
		s += fmt.Sprintf(" weight=%d", b.Weight)
	}
	return s
}

// String names the answer.
func (e Empty) String() string { return [...]string{"reject", "drop"}[e] }
