package haproxy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// hosts puts the rules of a listener into maps: for each path that some rule
// names, those that may match where it is the longest that does.
func (p *planner) hosts(s *socket, l *listener) {
	exact, prefix := s.id+"x.map", s.id+"p.map"
	p.entries(exact)
	p.entries(prefix)
	for _, h := range l.model.Hosts() {
		key, ok := hostKey(h.Hostname)
		if !ok {
			continue
		}
		s.hostWild = addDepth(s.hostWild, h.Hostname)
		if p.recall(s, l, h) {
			p.plainHost(s, l, h)
			continue
		}
		p.making = &memo{listener: l.id, port: s.model.Port}
		p.memos[h] = p.making
		at := l.id + "|" + key + "|"
		if l.model.Mode != model.HTTP { // the only path there is
			value := p.value(s, l, matching(h.Rules, func(m *model.Match) bool {
				return m.Matches(&model.Request{Host: strings.TrimPrefix(h.Hostname, "*"), Path: "/"})
			}))
			if value != unknown && value != invalid { // bytes have no status: the connection is closed
				p.set(prefix, at+"/", value)
			}
			continue
		}
		byPath := indexRules(h.Rules)
		for path := range sorted(byPath.exact) {
			if isPlain(path) && path != "" {
				p.set(exact, at+path, p.value(s, l, byPath.under(h.Rules, path, true)))
			}
		}
		for path := range sorted(byPath.prefix) {
			if isPlain(path) {
				p.set(prefix, at+path, p.value(s, l, byPath.under(h.Rules, path, false)))
			}
		}
		if _, given := byPath.prefix["/"]; !given && len(byPath.regexps) > 0 {
			p.set(prefix, at+"/", p.value(s, l, byPath.under(h.Rules, "/", false)))
		}
		p.plainHost(s, l, h)
	}
}

func (p *planner) entries(file string) map[string]string {
	if p.out.entries[file] == nil {
		p.out.entries[file] = map[string]string{}
	}
	return p.out.entries[file]
}

func matching(rules []*model.Rule, ok func(*model.Match) bool) []*model.Rule {
	var out []*model.Rule
	for _, r := range rules {
		if ok(&r.Match) {
			out = append(out, r)
		}
	}
	return out
}

// index finds rules by path: their numbers in the order in which they are tried.
type index struct {
	exact, prefix map[string][]int // a prefix ends with a slash
	regexps       []int
}

func indexRules(rules []*model.Rule) *index {
	x := &index{exact: map[string][]int{}, prefix: map[string][]int{}}
	for i, r := range rules {
		switch m := &r.Match; m.Kind {
		case model.PathExact:
			x.exact[m.Path] = append(x.exact[m.Path], i)
		case model.PathRegexp:
			x.regexps = append(x.regexps, i)
		default:
			key := strings.TrimSuffix(m.Path, "/") + "/"
			x.prefix[key] = append(x.prefix[key], i)
		}
	}
	return x
}

// under lists the rules that may match a path, or any path below it, up to the
// first that always does.
func (x *index) under(rules []*model.Rule, path string, exact bool) []*model.Rule {
	numbers := slices.Clone(x.regexps)
	if exact {
		numbers = append(numbers, x.exact[path]...)
		path += "/"
	}
	for i := range len(path) {
		if path[i] == '/' {
			numbers = append(numbers, x.prefix[path[:i+1]]...)
		}
	}
	slices.Sort(numbers)
	var out []*model.Rule
	for _, n := range numbers {
		out = append(out, rules[n])
		if isCertain(&rules[n].Match) {
			break
		}
	}
	return out
}

// isCertain reports whether a rule that was found by its path matches.
func isCertain(m *model.Match) bool {
	return m.Kind != model.PathRegexp && m.Method == "" && len(m.Headers)+len(m.Query) == 0
}

// value is what a map has for rules: the backend where that is all, a program's
// name if not.
func (p *planner) value(s *socket, l *listener, rules []*model.Rule) string {
	if len(rules) == 0 {
		return unknown
	}
	if b := plainBackend(rules[0]); b != nil {
		return p.slot(b.Pool, kindFor(l.model, rules[0].Action))
	}
	if l.model.Mode != model.HTTP {
		return p.program(p.streams(l.model, rules[:1]))
	}
	return p.program(p.chain(s.model, rules))
}

func (p *planner) program(text string) string {
	sum := sha256.Sum256([]byte(text))
	name := "l" + hex.EncodeToString(sum[:12])
	p.out.programs[name] = text
	if p.making.programs == nil {
		p.making.programs = map[string]string{}
	}
	p.making.programs[name] = text
	return name
}

func kindFor(l *model.Listener, a *model.Action) kind {
	switch l.Mode {
	case model.Passthrough:
		return kind{stream: true, raw: true, attempts: -1}
	case model.Terminate:
		return kind{stream: true, attempts: -1}
	}
	return kindOf(a)
}

// streams writes the choice among several backends.
func (p *planner) streams(l *model.Listener, rules []*model.Rule) string {
	w := &writer{}
	w.WriteString("return {{a={backends={")
	for i := range rules[0].Action.Backends {
		b := &rules[0].Action.Backends[i]
		if b.Weight <= 0 {
			continue
		}
		w.table("", func() {
			w.intField("w", int64(b.Weight))
			name := unknown
			if b.Invalid == "" {
				name = p.slot(b.Pool, kindFor(l, rules[0].Action))
			}
			if name == unknown || name == invalid {
				w.intField("status", 500)
			} else {
				w.textField("n", name)
			}
		})
	}
	w.WriteString("}}}}\n")
	if a := rules[0].Action; a.Invalid != "" || a.Answer != 0 || a.Unroutable || !slices.ContainsFunc(a.Backends, func(b model.Backend) bool { return b.Weight > 0 }) {
		return "return {{a={status=500}}}\n"
	}
	return w.String()
}

// plainBackend is the only backend of a rule that changes nothing; nil if it isn't so.
func plainBackend(r *model.Rule) *model.Backend {
	a := r.Action
	if !isCertain(&r.Match) || a.Invalid != "" || a.Answer != 0 || a.RequireHTTPS != 0 || a.Unroutable || a.Redirect != nil || a.Rewrite != nil || a.CORS != nil || len(a.Mirrors) > 0 ||
		a.Timeout > 0 || a.BackendTimeout > 0 || a.ReadTimeout > 0 || a.Allow != nil || len(a.Deny) > 0 || a.MaxBody > 0 || a.Limit != nil || a.BasicAuth != nil ||
		a.Affinity != nil || a.Identity != nil || a.Fallback != "" || isEdit(&a.Request) || isEdit(&a.Response) || LackingAction(a) != "" {
		return nil
	}
	var only *model.Backend
	for i := range a.Backends {
		b := &a.Backends[i]
		if b.Weight <= 0 {
			continue
		}
		if only != nil || b.Invalid != "" || b.Redirect != nil || b.Rewrite != nil || b.CORS != nil || isEdit(&b.Request) || isEdit(&b.Response) {
			return nil
		}
		only = b
	}
	return only
}

func isEdit(e *model.HeaderEdit) bool { return len(e.Set)+len(e.Add)+len(e.Remove) > 0 }
