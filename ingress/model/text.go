package model

import (
	"fmt"
	"slices"
	"strings"
)

// String is the table as people read it.
func (t *Table) String() string {
	var b strings.Builder
	for _, s := range t.Sockets {
		tls := ""
		if s.TLS {
			tls = " tls"
		}
		if s.HTTP3 {
			tls += " http/3"
		}
		fmt.Fprintf(&b, "socket %s%s\n", s.Name, tls)
		for _, l := range s.Listeners {
			fmt.Fprintf(&b, "  listener %s %s %q", l.Name, l.Mode, l.Hostname)
			if len(l.Certificates) > 0 {
				fmt.Fprintf(&b, " certificates %d", len(l.Certificates))
			}
			if l.Clients != nil {
				b.WriteString(" client-certificates")
			}
			b.WriteString("\n")
			for _, h := range l.Hosts() {
				fmt.Fprintf(&b, "    host %q\n", h.Hostname)
				for _, r := range h.Rules {
					fmt.Fprintf(&b, "      %s: %s\n", &r.Match, r.Action)
				}
			}
		}
	}
	var names []string
	for name := range t.Pools {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "pool %s\n", t.Pools[name])
	}
	return b.String()
}

// String is the match as people read it.
func (m *Match) String() string {
	out := [...]string{"exactly", "regexp", "below"}[m.Kind] + " " + m.Path
	if m.Method != "" {
		out = m.Method + " " + out
	}
	for _, h := range m.Headers {
		out += " header " + h.String()
	}
	for _, q := range m.Query {
		out += " query " + q.String()
	}
	return out
}

// String is the value as people read it.
func (v ValueMatch) String() string {
	if v.Regexp != nil {
		return v.Name + "~" + v.Value
	}
	return v.Name + "=" + v.Value
}

// String is what the action does, as people read it.
func (a *Action) String() string {
	out := a.Route + " rule " + a.Rule
	if a.RequireHTTPS != 0 {
		out += fmt.Sprintf(", http: redirect %d", a.RequireHTTPS)
	}
	switch {
	case a.Invalid != "":
		return out + ": invalid: " + a.Invalid
	case a.Redirect != nil:
		return out + fmt.Sprintf(": redirect %d", a.Redirect.Status)
	case a.Answer != 0:
		return out + fmt.Sprintf(": answer %d", a.Answer)
	case a.Unroutable:
		return out + ": no backend"
	}
	for _, x := range []struct {
		name  string
		given bool
	}{
		{"rewrite", a.Rewrite != nil}, {"mirror", len(a.Mirrors) > 0}, {"cors", a.CORS != nil},
		{"timeout", a.Timeout+a.BackendTimeout+a.ReadTimeout > 0}, {"retry", a.Retry != nil}, {"allow", a.Allow != nil},
		{"limit", a.Limit != nil}, {"rate", a.Rate != nil}, {"identity", a.Identity != nil}, {"any-of", a.AnyOf}, {"auth", a.BasicAuth != nil}, {"affinity", a.Affinity != nil},
	} {
		if x.given {
			out += " " + x.name
		}
	}
	if f := a.Affinity; f != nil && f.Header != "" {
		out += " by header " + f.Header
	} else if f != nil && !f.ByClient {
		out += " by cookie " + f.Cookie
	}
	if a.Auth != nil {
		out += " asks " + a.Auth.URL
	}
	if a.Errors != nil {
		out += fmt.Sprintf(" instead of %v %s", a.Errors.Codes, a.Errors.Pool)
	}
	if a.Fallback != "" {
		out += " or " + a.Fallback
	}
	out += ":"
	for _, b := range a.Backends {
		if b.Invalid != "" {
			out += fmt.Sprintf(" [%s]*%d", b.Invalid, b.Weight)
		} else {
			out += fmt.Sprintf(" %s*%d", b.Pool, b.Weight)
		}
	}
	return out
}

// String is the pool as people read it.
func (p *Pool) String() string {
	out := p.Name + " " + [...]string{"http/1.1", "h2c", "http/2"}[p.Protocol]
	if p.TLS != nil {
		out += " tls " + p.TLS.ServerName
	}
	if p.Algorithm != RoundRobin {
		out += [...]string{"", " least requests", " by client"}[p.Algorithm]
	}
	if p.Proxy != ProxyNone {
		out += fmt.Sprintf(" proxy v%d", p.Proxy)
	}
	if p.Eject != nil {
		out += " ejects"
	}
	if p.Invalid != "" {
		out += " invalid: " + p.Invalid
	}
	for _, e := range p.Endpoints {
		out += " " + e.Addr.String()
		if e.Weight != 1 {
			out += fmt.Sprintf("*%d", e.Weight)
		}
	}
	return out
}
