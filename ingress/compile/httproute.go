package compile

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// compileHTTPRoute reads a route once for all its listeners; only what a Gateway
// shows to backends may differ among them.
func (c *compiler) compileHTTPRoute(o *gatewayv1.HTTPRoute) {
	r := &route{kind: "HTTPRoute", object: o, spec: o.Spec.CommonRouteSpec, hostnames: o.Spec.Hostnames}
	c.refs.begin(r)
	defer c.refs.end()
	plain := c.httpRules(r, o, nil)
	for _, a := range c.attach(r) {
		rules := plain
		if g := a.gateway; g.asksOwn() {
			rules = c.httpRules(r, o, g)
		}
		a.add(r, rules)
	}
	c.notePolicies(r)
}

// add gives the listener the rules of a route.
func (a attachment) add(r *route, rules []*model.Rule) {
	for _, h := range a.hostnames {
		named := r.named(h, a.hostname)
		for i, rule := range rules {
			a.rules[h] = append(a.rules[h], orderedRule{Rule: rule, route: r, index: i, named: named})
		}
	}
}

// httpRules makes a rule of each match. A rule that can't be read answers 500,
// so that its requests don't go elsewhere.
func (c *compiler) httpRules(r *route, o *gatewayv1.HTTPRoute, g *gateway) []*model.Rule {
	var list []*model.Rule
	for i := range o.Spec.Rules {
		spec := &o.Spec.Rules[i]
		action := c.httpAction(r, g, spec, i)
		matches := spec.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for j := range matches {
			m, err := httpMatch(&matches[j])
			if err != nil {
				r.reject(gatewayv1.RouteReasonUnsupportedValue, fmt.Sprintf("spec.rules[%d].matches[%d]: %v", i, j, err))
				continue
			}
			rule := &model.Rule{Match: m, Action: action}
			if why := c.lacking(rule); why != "" {
				r.lack(fmt.Sprintf("spec.rules[%d]", i), why)
			}
			list = append(list, rule)
		}
	}
	return list
}

func (r *route) reject(reason gatewayv1.RouteConditionReason, message string) {
	if r.rejected == "" {
		r.rejected, r.rejectedMessage = reason, message
	}
}

func httpMatch(m *gatewayv1.HTTPRouteMatch) (model.Match, error) {
	out := model.Match{Kind: model.PathPrefix, Path: "/", Method: string(value(m.Method, ""))}
	if m.Path != nil {
		out.Path = value(m.Path.Value, "/")
		switch value(m.Path.Type, gatewayv1.PathMatchPathPrefix) {
		case gatewayv1.PathMatchExact:
			out.Kind = model.PathExact
		case gatewayv1.PathMatchPathPrefix:
		case gatewayv1.PathMatchRegularExpression:
			expression, err := anchored(out.Path)
			if err != nil {
				return out, fmt.Errorf("path.value: %w", err)
			}
			out.Kind, out.Regexp = model.PathRegexp, expression
		default:
			return out, fmt.Errorf("path.type: %s is not known", *m.Path.Type)
		}
		if out.Kind != model.PathRegexp {
			out.Path = policy.RulePath(out.Path)
		}
	}
	for i, h := range m.Headers {
		v, err := valueMatch(http.CanonicalHeaderKey(string(h.Name)), h.Value, value(h.Type, gatewayv1.HeaderMatchExact) == gatewayv1.HeaderMatchRegularExpression)
		if err != nil {
			return out, fmt.Errorf("headers[%d].value: %w", i, err)
		}
		out.Headers = addMatch(out.Headers, v)
	}
	for i, q := range m.QueryParams {
		v, err := valueMatch(string(q.Name), q.Value, value(q.Type, gatewayv1.QueryParamMatchExact) == gatewayv1.QueryParamMatchRegularExpression)
		if err != nil {
			return out, fmt.Errorf("queryParams[%d].value: %w", i, err)
		}
		out.Query = addMatch(out.Query, v)
	}
	return out, nil
}

// addMatch adds a match unless there is one of its name: the first counts.
func addMatch(list []model.ValueMatch, v model.ValueMatch) []model.ValueMatch {
	for _, m := range list {
		if m.Name == v.Name {
			return list
		}
	}
	return append(list, v)
}

func valueMatch(name, text string, isRegexp bool) (model.ValueMatch, error) {
	v := model.ValueMatch{Name: name, Value: text}
	var err error
	if isRegexp {
		v.Regexp, err = anchored(text)
	}
	return v, err
}

// anchored is the regular expression (RE2) for a whole text.
func anchored(text string) (*regexp.Regexp, error) {
	return regexp.Compile("^(?:" + text + ")$")
}

// httpAction compiles what a rule does with requests that match it.
func (c *compiler) httpAction(r *route, g *gateway, spec *gatewayv1.HTTPRouteRule, index int) *model.Action {
	at := fmt.Sprintf("spec.rules[%d]", index)
	a := &model.Action{Route: r.title(), Rule: string(value(spec.Name, gatewayv1.SectionName(strconv.Itoa(index))))}
	f := c.httpFilters(r, g, spec.Filters, at+".filters")
	a.Request, a.Response, a.Redirect, a.Rewrite, a.Mirrors, a.CORS, a.Invalid = f.request, f.response, f.redirect, f.rewrite, f.mirrors, f.cors, f.invalid
	for i := range spec.BackendRefs {
		ref := &spec.BackendRefs[i]
		b := c.backend(r, g, &ref.BackendRef, fmt.Sprintf("%s.backendRefs[%d]", at, i))
		f := c.httpFilters(r, g, ref.Filters, fmt.Sprintf("%s.backendRefs[%d].filters", at, i))
		b.Request, b.Response, b.Redirect, b.Rewrite, b.Mirrors, b.CORS = f.request, f.response, f.redirect, f.rewrite, f.mirrors, f.cors
		if b.Invalid == "" {
			b.Invalid = f.invalid
		}
		a.Backends = append(a.Backends, b)
	}
	a.Unroutable = len(a.Backends) == 0 && a.Redirect == nil
	if t := spec.Timeouts; t != nil {
		a.Timeout = r.duration(t.Request, at+".timeouts.request")
		a.BackendTimeout = r.duration(t.BackendRequest, at+".timeouts.backendRequest")
	}
	if a.Affinity = r.session(spec.SessionPersistence, at); a.Affinity != nil {
		a.Affinity.Path = sessionPath(spec.Matches)
	}
	if spec.Retry != nil {
		a.Retry = &model.Retry{Attempts: value(spec.Retry.Attempts, 1), Backoff: r.duration(spec.Retry.Backoff, at+".retry.backoff"), Connection: true}
		for _, code := range spec.Retry.Codes {
			a.Retry.Codes = append(a.Retry.Codes, int(code))
		}
	}
	return a
}

// duration parses the duration in a field of the route; 0 if it isn't given. The route is
// rejected if it can't be parsed. The path of the field is at.
func (r *route) duration(d *gatewayv1.Duration, at string) time.Duration {
	if d == nil {
		return 0
	}
	out, err := time.ParseDuration(string(*d))
	if err != nil {
		r.reject(gatewayv1.RouteReasonUnsupportedValue, fmt.Sprintf("%s: %q is no duration", at, *d))
	}
	return out
}
