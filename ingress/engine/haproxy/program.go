package haproxy

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// chain writes rules that are tried in turn for a path, and what they do.
func (p *planner) chain(s *model.Socket, rules []*model.Rule) string {
	w := &writer{}
	w.WriteString("return {")
	for _, r := range rules {
		w.table("", func() { p.rule(w, s, r) })
	}
	w.WriteString("}\n")
	return w.String()
}

func (p *planner) rule(w *writer, s *model.Socket, r *model.Rule) {
	m := &r.Match
	if m.Kind == model.PathRegexp {
		w.regexp("p", m.Regexp)
	}
	if m.Regexp != nil {
		w.regexp("re", m.Regexp)
	}
	w.textField("prefix", strings.TrimSuffix(m.Path, "/"))
	if m.Method != "" {
		w.textField("m", m.Method)
	}
	values(w, "h", m.Headers, strings.ToLower)
	values(w, "q", m.Query, func(name string) string { return name })
	w.table("a", func() { p.action(w, s, r) })
}

func values(w *writer, field string, list []model.ValueMatch, name func(string) string) {
	if len(list) == 0 {
		return
	}
	w.table(field, func() {
		for i := range list {
			v := &list[i]
			w.table("", func() {
				w.textField("n", name(v.Name))
				if v.Regexp != nil {
					w.regexp("re", v.Regexp)
				} else {
					w.textField("v", v.Value)
				}
			})
		}
	})
}

func (p *planner) action(w *writer, s *model.Socket, r *model.Rule) {
	a := r.Action
	lacking := LackingAction(a)
	if lacking == "" {
		lacking = LackingMatch(&r.Match)
	}
	if a.RequireHTTPS != 0 {
		w.intField("https", int64(a.RequireHTTPS))
	}
	if lacking == "" {
		guard(w, a)
	}
	total := 0
	for i := range a.Backends {
		total += a.Backends[i].Weight
	}
	switch {
	case a.Invalid != "" || lacking != "":
		w.intField("status", http.StatusInternalServerError)
		return
	case a.Answer != 0:
		w.intField("status", int64(a.Answer))
		return
	case a.Redirect != nil:
		p.redirect(w, s, r, a.Redirect)
		return
	case a.Unroutable || total == 0:
		w.intField("status", http.StatusInternalServerError)
		return
	}
	rewrite(w, r, a.Rewrite)
	if i := a.Identity; i != nil {
		w.table("identity", func() { w.flag("whole", i.Whole) })
	}
	edit(w, "request", &a.Request)
	edit(w, "response", &a.Response)
	if d := cmp.Or(a.BackendTimeout, a.ReadTimeout); d > 0 { // haproxy has one of both: while nothing comes
		w.intField("timeout", max(d.Milliseconds(), 1))
	}
	if f := a.Affinity; f != nil && !f.ByClient && isSession(f) {
		w.table("affinity", func() {
			if f.Header != "" {
				w.textField("header", strings.ToLower(f.Header))
			} else {
				w.textField("name", f.Cookie)
				w.textField("attributes", attributes(f))
			}
			w.flag("loose", f.Loose)
		})
	}
	w.table("backends", func() {
		for i := range a.Backends {
			if b := &a.Backends[i]; b.Weight > 0 {
				w.table("", func() { p.backend(w, s, r, b) })
			}
		}
	})
	if a.Fallback != "" && p.slot(a.Fallback, kindOf(a)) != unknown {
		w.table("fallback", func() { p.backend(w, s, r, &model.Backend{Pool: a.Fallback}) })
	}
}

func (p *planner) backend(w *writer, s *model.Socket, r *model.Rule, b *model.Backend) {
	w.intField("w", int64(b.Weight))
	name := ""
	if b.Invalid == "" {
		name = p.slot(b.Pool, kindOf(r.Action))
	}
	switch {
	case b.Invalid != "":
		w.flag("nowhere", true)
		w.intField("status", http.StatusInternalServerError)
	case b.Redirect != nil:
		p.redirect(w, s, r, b.Redirect)
	case name == unknown:
		w.intField("status", http.StatusInternalServerError)
	case name == invalid:
		w.intField("status", http.StatusBadGateway)
	default:
		w.textField("n", name)
		rewrite(w, r, b.Rewrite)
		edit(w, "request", &b.Request)
		edit(w, "response", &b.Response)
		cors(w, b.CORS)
	}
}

func (p *planner) redirect(w *writer, s *model.Socket, r *model.Rule, d *model.Redirect) {
	w.table("redirect", func() {
		w.intField("status", int64(d.Status))
		w.intField("own", int64(s.Port))
		for _, f := range []struct{ name, text string }{{"whole", d.Whole}, {"scheme", d.Scheme}, {"host", d.Host}} {
			if f.text != "" {
				w.textField(f.name, oneLine(f.text))
			}
		}
		if d.Port != 0 {
			w.intField("port", int64(d.Port))
		}
		w.flag("relative", d.Relative)
		pathEdit(w, r, d.Path)
	})
}

func rewrite(w *writer, r *model.Rule, e *model.Rewrite) {
	if e == nil {
		return
	}
	w.table("rewrite", func() {
		if e.Host != "" {
			w.textField("host", oneLine(e.Host))
		}
		pathEdit(w, r, e.Path)
	})
}

func pathEdit(w *writer, r *model.Rule, e *model.PathEdit) {
	if e == nil {
		return
	}
	w.table("path", func() {
		w.textField("v", e.Value)
		w.flag("full", e.Full)
		if e.Groups && r.Match.Regexp != nil {
			w.table("groups", func() { template(w, e.Value, r.Match.Regexp.SubexpNames()) })
		}
	})
}

// template writes what [regexp.Regexp.Expand] would put together: texts, and numbers
// of groups.
func template(w *writer, text string, names []string) {
	for text != "" {
		before, after, found := strings.Cut(text, "$")
		if before != "" {
			w.text(before)
			w.WriteByte(',')
		}
		if !found {
			return
		}
		name, rest, ok := groupName(after)
		switch {
		case strings.HasPrefix(after, "$"):
			w.WriteString(`"$",`)
			rest = after[1:]
		case !ok:
			w.WriteString(`"$",`)
			rest = after
		default:
			n, err := strconv.Atoi(name)
			if err != nil {
				n = slices.Index(names, name)
			}
			if n >= 0 && n < len(names) {
				w.WriteString(strconv.Itoa(n))
				w.WriteByte(',')
			}
		}
		text = rest
	}
}

// groupName is the name that follows a dollar: name or {name}.
func groupName(text string) (name, rest string, ok bool) {
	inside, braced := strings.CutPrefix(text, "{")
	n := 0
	for n < len(inside) && (inside[n] == '_' || inside[n] >= '0' && inside[n] <= '9' || inside[n]|0x20 >= 'a' && inside[n]|0x20 <= 'z') {
		n++
	}
	if n == 0 || braced && (n == len(inside) || inside[n] != '}') {
		return "", "", false
	}
	name, rest = inside[:n], inside[n:]
	if braced {
		rest = rest[1:]
	}
	return name, rest, true
}

func edit(w *writer, name string, e *model.HeaderEdit) {
	if len(e.Set)+len(e.Add)+len(e.Remove) == 0 {
		return
	}
	pairs := func(field string, list []model.Header) {
		if len(list) == 0 {
			return
		}
		w.table(field, func() {
			for _, h := range list {
				if policy.Written(h.Name) != "" || !httpguts.ValidHeaderFieldName(h.Name) {
					continue
				}
				w.table("", func() { w.text(strings.ToLower(h.Name)); w.WriteByte(','); w.text(oneLine(h.Value)) })
			}
		})
	}
	w.table(name, func() {
		pairs("set", e.Set)
		pairs("add", e.Add)
		if len(e.Remove) > 0 {
			w.table("del", func() {
				for _, n := range e.Remove {
					if policy.Written(n) != "" || !httpguts.ValidHeaderFieldName(n) {
						continue
					}
					w.text(strings.ToLower(n))
					w.WriteByte(',')
				}
			})
		}
	})
}

// oneLine is a header's value as net/http writes it: without what would end the line.
func oneLine(value string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		if r == 0 {
			return -1
		}
		return r
	}, value))
}

// guard writes who is let in.
func guard(w *writer, a *model.Action) {
	ranges(w, "deny", a.Deny)
	if a.Allow != nil {
		ranges(w, "allow", a.Allow)
		if len(a.Allow) == 0 {
			w.WriteString("allow={},")
		}
	}
	if a.MaxBody > 0 {
		w.intField("maxBody", a.MaxBody)
	}
	if b := a.BasicAuth; b != nil {
		w.table("auth", func() {
			w.textField("challenge", oneLine(`Basic realm="`+b.Realm+`", charset="UTF-8"`))
			w.table("users", func() {
				for name, hash := range sorted(b.Users) {
					w.WriteByte('[')
					w.text(name)
					w.WriteString("]=")
					w.text(strings.TrimPrefix(hash, "{SHA}"))
					w.WriteByte(',')
				}
			})
		})
	}
	cors(w, a.CORS)
}

func ranges(w *writer, field string, list []netip.Prefix) {
	if len(list) == 0 {
		return
	}
	w.table(field, func() { hexRanges(w, list) })
}

func hexRanges(w *writer, list []netip.Prefix) {
	for _, r := range list {
		w.table("", func() {
			w.text(strings.ToUpper(hex.EncodeToString(r.Addr().AsSlice())))
			fmt.Fprintf(&w.Builder, ",%d", r.Bits())
		})
	}
}

func cors(w *writer, c *model.CORS) {
	if c == nil {
		return
	}
	w.table("cors", func() {
		w.table("origins", func() {
			for _, o := range c.Origins {
				before, after, wild := strings.Cut(o, "*")
				switch {
				case !wild:
					w.table("", func() { w.textField("exact", strings.ToLower(o)) })
				case before == "" && after == "":
					w.table("", func() { w.flag("all", true) })
				default:
					w.table("", func() { w.text(before); w.WriteByte(','); w.text(after) })
				}
			}
		})
		w.flag("all", slices.Contains(c.Origins, "*"))
		w.flag("credentials", c.Credentials)
		w.flag("literal", c.Literal)
		w.flag("anyMethod", slices.Contains(c.Methods, "*"))
		w.flag("anyHeader", slices.Contains(c.Headers, "*"))
		w.textField("methods", oneLine(strings.Join(c.Methods, ", ")))
		w.textField("headers", oneLine(strings.Join(c.Headers, ", ")))
		if len(c.Expose) > 0 {
			w.textField("expose", oneLine(strings.Join(c.Expose, ", ")))
		}
		if c.MaxAge > 0 {
			w.textField("age", strconv.Itoa(c.MaxAge))
		}
	})
}

// isSession reports whether a client can be told of its session: the name of a cookie or
// a header is a token.
func isSession(f *model.Affinity) bool {
	return httpguts.ValidHeaderFieldName(cmp.Or(f.Header, f.Cookie))
}

// attributes are those of a cookie, after its value.
func attributes(a *model.Affinity) string {
	named := *a
	named.Cookie = "x"
	return strings.TrimPrefix(named.SetCookie("y"), "x=y")
}
