package convert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// share gives a canary its share of the rules of the Ingresses that have its paths: they
// are those in all else, whatever they ask of clients. Where they aren't converted, it isn't.
func (i *one) share() {
	choice, err := i.chosen()
	if err != nil {
		i.left("annotation %scanary: %v: the Ingress is not converted", nginx, err)
		return
	}
	i.eachPath(func(host string, p *networkingv1.HTTPIngressPath, at string) {
		main := i.places[placeOf(i, host, p)]
		switch {
		case main == nil:
			i.left("%s: no other Ingress of the namespace has host %q and this path, of which it could be the canary", at, host)
			return
		case main.closed:
			i.left("%s: Ingress %s, of which it is the canary, is not converted", at, main.o.Name)
			return
		}
		n, there := main.at[placeOf(i, host, p)]
		ref, err := i.backend(&p.Backend)
		if err != nil || !there {
			i.left("%s.backend.%v", at, cmp.Or(err, fmt.Errorf("Ingress %s, of which it is the canary, has no rule for it", main.o.Name))) //nolint:staticcheck // a kind's name
			return
		}
		main.rules[host] = choice.add(main.rules[host], n, ref)
	})
}

// choice is which requests a canary gets.
type choice struct {
	header        *gatewayv1.HTTPHeaderMatch
	weight, total int32
}

// chosen reads which requests a canary gets.
func (i *one) chosen() (*choice, error) {
	get := func(name string) string { return i.o.Annotations[nginx+"canary-"+name] }
	c := &choice{total: 100}
	if get("by-cookie") != "" {
		return nil, fmt.Errorf("canary-by-cookie: match the header Cookie in a rule of the route")
	}
	for name, n := range map[string]*int32{"weight": &c.weight, "weight-total": &c.total} {
		if text := get(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 20) // as routes have it: a million at most
			if err != nil {
				return nil, fmt.Errorf("canary-%s: %q: must be a number up to 1000000", name, text)
			}
			*n = int32(v)
		}
	}
	if c.weight > c.total {
		return nil, fmt.Errorf("canary-weight: %d is more than the total, %d", c.weight, c.total)
	}
	if name := get("by-header"); name != "" {
		c.header = &gatewayv1.HTTPHeaderMatch{Name: gatewayv1.HTTPHeaderName(name), Value: cmp.Or(get("by-header-value"), "always")}
		if pattern := get("by-header-pattern"); pattern != "" && get("by-header-value") == "" {
			if _, err := regexp.Compile(pattern); err != nil {
				return nil, fmt.Errorf("canary-by-header-pattern: %w", err)
			}
			kind := gatewayv1.HeaderMatchRegularExpression
			c.header.Type, c.header.Value = &kind, ".*(?:"+pattern+").*"
		}
	}
	if c.header == nil && c.weight == 0 {
		return nil, fmt.Errorf("neither canary-by-header nor canary-weight says which requests it gets")
	}
	return c, nil
}

// add gives the backend its requests of a rule: those with the header by a rule of their
// own, and a share of the others, but for those whose header says never.
func (c *choice) add(rules []gatewayv1.HTTPRouteRule, n int, ref gatewayv1.BackendRef) []gatewayv1.HTTPRouteRule {
	own := func(h gatewayv1.HTTPHeaderMatch, refs ...gatewayv1.HTTPBackendRef) {
		rule := *rules[n].DeepCopy()
		rule.Matches[0].Headers, rule.BackendRefs = []gatewayv1.HTTPHeaderMatch{h}, slices.Clone(refs)
		rules = append(rules, rule)
	}
	if len(rules[n].BackendRefs) == 0 { // it redirects, whoever asks
		return rules
	}
	main := slices.Clone(rules[n].BackendRefs)
	if h := c.header; h != nil {
		own(*h, gatewayv1.HTTPBackendRef{BackendRef: ref})
		if c.weight > 0 && h.Type == nil && h.Value == "always" {
			own(gatewayv1.HTTPHeaderMatch{Name: h.Name, Value: "never"}, main...)
		}
	}
	if c.weight > 0 {
		rest := c.total - c.weight
		main[0].Weight, ref.Weight = &rest, &c.weight
		rules[n].BackendRefs = append(main, gatewayv1.HTTPBackendRef{BackendRef: ref})
	}
	return rules
}
