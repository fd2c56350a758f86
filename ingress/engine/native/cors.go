package native

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// allow answers a preflight request (Fetch, 4.8); false if it isn't one.
func allow(w http.ResponseWriter, r *http.Request, c *model.CORS) bool {
	if c == nil || r.Method != http.MethodOptions {
		return false
	}
	h := w.Header()
	isPreflight := r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
	if !isPreflight && !(c.Literal && mayAsk(r.Header.Get("Origin"), c)) {
		return false
	}
	if allowed(h, r.Header, c) {
		set(h, "Access-Control-Allow-Methods", named(c.Methods, c.Credentials, r.Header.Get("Access-Control-Request-Method")))
		set(h, "Access-Control-Allow-Headers", named(c.Headers, c.Credentials, r.Header.Get("Access-Control-Request-Headers")))
		if c.MaxAge > 0 {
			h.Set("Access-Control-Max-Age", strconv.Itoa(c.MaxAge))
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowed says in h that the origin may read the answer, if it may.
func allowed(h, request http.Header, c *model.CORS) bool {
	origin := request.Get("Origin")
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(h, name) // the rule's word counts, not the backend's
		}
	}
	if !mayAsk(origin, c) {
		return false
	}
	if slices.Contains(c.Origins, "*") && (!c.Credentials || c.Literal) {
		origin = "*"
	} else {
		h.Add("Vary", "Origin")
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.Credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	set(h, "Access-Control-Expose-Headers", strings.Join(c.Expose, ", "))
	return true
}

// mayAsk reports whether an origin may; none is any where that is the same.
func mayAsk(origin string, c *model.CORS) bool {
	if origin == "" {
		return c.Literal && slices.Contains(c.Origins, "*")
	}
	return slices.ContainsFunc(c.Origins, func(pattern string) bool { return matchesOrigin(pattern, origin, c.Literal) })
}

func set(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// named lists what is allowed. With credentials, an asterisk means nothing to
// browsers, so what was asked for is named.
func named(list []string, credentials bool, asked string) string {
	if slices.Contains(list, "*") && credentials {
		return asked
	}
	return strings.Join(list, ", ")
}

// matchesOrigin compares an origin; an asterisk stands for any labels, or for one.
func matchesOrigin(pattern, origin string, oneLabel bool) bool {
	before, after, wild := strings.Cut(pattern, "*")
	switch {
	case !wild:
		return strings.EqualFold(pattern, origin)
	case before == "" && after == "":
		return true
	}
	return len(origin) > len(before)+len(after) && strings.HasPrefix(origin, before) && strings.HasSuffix(origin, after) &&
		!(oneLabel && strings.ContainsAny(origin[len(before):len(origin)-len(after)], ".:/@"))
}
