package compile

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// compileGRPCRoute makes rules for HTTP of a route for gRPC: a method is a path.
func (c *compiler) compileGRPCRoute(o *gatewayv1.GRPCRoute) {
	r := &route{kind: "GRPCRoute", object: o, spec: o.Spec.CommonRouteSpec, hostnames: o.Spec.Hostnames}
	c.refs.begin(r)
	defer c.refs.end()
	plain := c.grpcRules(r, o, nil)
	for _, a := range c.attach(r) {
		rules := plain
		if g := a.gateway; g.asksOwn() {
			rules = c.grpcRules(r, o, g)
		}
		a.add(r, rules)
	}
	c.notePolicies(r)
}

func (c *compiler) grpcRules(r *route, o *gatewayv1.GRPCRoute, g *gateway) []*model.Rule {
	var list []*model.Rule
	for i := range o.Spec.Rules {
		spec := &o.Spec.Rules[i]
		action := c.grpcAction(r, g, spec, i)
		matches := spec.Matches
		if len(matches) == 0 {
			matches = []gatewayv1.GRPCRouteMatch{{}}
		}
		for j := range matches {
			m, err := grpcMatch(&matches[j])
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

func grpcMatch(m *gatewayv1.GRPCRouteMatch) (model.Match, error) {
	out := model.Match{Kind: model.PathPrefix, Path: "/"}
	if m.Method != nil {
		service, method := value(m.Method.Service, ""), value(m.Method.Method, "")
		isRegexp := value(m.Method.Type, gatewayv1.GRPCMethodMatchExact) == gatewayv1.GRPCMethodMatchRegularExpression
		switch {
		case !isRegexp && service != "" && method != "":
			out.Kind, out.Path = model.PathExact, "/"+service+"/"+method
		case !isRegexp && service != "":
			out.Path = "/" + service
		default:
			if !isRegexp {
				service, method = regexp.QuoteMeta(service), regexp.QuoteMeta(method)
			}
			if service == "" {
				service = "[^/]+"
			}
			if method == "" {
				method = "[^/]+"
			}
			out.Kind, out.Path = model.PathRegexp, "/(?:"+service+")/(?:"+method+")"
			var err error
			if out.Regexp, err = anchored(out.Path); err != nil {
				return out, fmt.Errorf("method: %w", err)
			}
		}
	}
	for i, h := range m.Headers {
		v, err := valueMatch(http.CanonicalHeaderKey(string(h.Name)), h.Value, value(h.Type, gatewayv1.GRPCHeaderMatchExact) == gatewayv1.GRPCHeaderMatchRegularExpression)
		if err != nil {
			return out, fmt.Errorf("headers[%d].value: %w", i, err)
		}
		out.Headers = addMatch(out.Headers, v)
	}
	return out, nil
}

func (c *compiler) grpcAction(r *route, g *gateway, spec *gatewayv1.GRPCRouteRule, index int) *model.Action {
	at := fmt.Sprintf("spec.rules[%d]", index)
	a := &model.Action{Route: r.title(), Rule: string(value(spec.Name, gatewayv1.SectionName(strconv.Itoa(index))))}
	f := c.httpFilters(r, g, asHTTP(spec.Filters), at+".filters")
	a.Request, a.Response, a.Mirrors, a.Invalid = f.request, f.response, f.mirrors, f.invalid
	for i := range spec.BackendRefs {
		ref := &spec.BackendRefs[i]
		b := c.backend(r, g, &ref.BackendRef, fmt.Sprintf("%s.backendRefs[%d]", at, i))
		f := c.httpFilters(r, g, asHTTP(ref.Filters), fmt.Sprintf("%s.backendRefs[%d].filters", at, i))
		b.Request, b.Response, b.Mirrors = f.request, f.response, f.mirrors
		if b.Invalid == "" {
			b.Invalid = f.invalid
		}
		a.Backends = append(a.Backends, b)
	}
	a.Affinity = r.session(spec.SessionPersistence, at)
	a.Unroutable = len(a.Backends) == 0
	return a
}

// asHTTP are the filters as HTTPRoutes have them.
func asHTTP(list []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	for _, f := range list {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return out
}
