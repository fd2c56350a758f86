package compile

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// canary is which requests of another Ingress's paths an Ingress gets: those that a
// header says, those that a cookie says, and a share of all others.
type canary struct {
	choices       []canaryChoice
	weight, total int
}

// canaryChoice is what some requests are known by.
type canaryChoice struct {
	match model.ValueMatch
	never bool // they stay with the main Ingress
}

// readCanary reads all annotations of a canary.
func readCanary(r *reading, t string) error {
	o, a := r.o, r.a
	on := false
	if err := readBool(&on, t); err != nil || !on {
		return err
	}
	// One that can't be read gets nothing, and takes nothing.
	a.canary = &canary{}
	read := &canary{total: 100}
	get := func(name string) string { return o.Annotations[nginx+"canary-"+name] }
	if name := get("by-header"); name != "" {
		one := model.ValueMatch{Name: http.CanonicalHeaderKey(name), Value: or(get("by-header-value"), "always")}
		pattern := get("by-header-pattern")
		if pattern != "" && get("by-header-value") == "" {
			expression, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("canary-by-header-pattern: %w", err)
			}
			one.Value, one.Regexp = pattern, expression
		}
		read.choices = append(read.choices, canaryChoice{match: one})
		if get("by-header-value") == "" && pattern == "" {
			read.choices = append(read.choices, canaryChoice{model.ValueMatch{Name: one.Name, Value: "never"}, true})
		}
	}
	if name := get("by-cookie"); name != "" {
		for _, value := range []string{"always", "never"} {
			expression := regexp.MustCompile(`(?:^|[;,])\s*` + regexp.QuoteMeta(name) + `=` + value + `\s*(?:[;,]|$)`)
			read.choices = append(read.choices, canaryChoice{model.ValueMatch{Name: "Cookie", Value: name + "=" + value, Regexp: expression}, value == "never"})
		}
	}
	var err error
	for name, n := range map[string]*int{"weight": &read.weight, "weight-total": &read.total} {
		if text := get(name); text != "" {
			if *n, err = strconv.Atoi(text); err != nil || *n < 0 {
				return fmt.Errorf("canary-%s: %q: must be a whole number", name, text)
			}
		}
	}
	if read.weight > read.total {
		return fmt.Errorf("canary-weight: %d is more than the total, %d", read.weight, read.total)
	}
	if len(read.choices) == 0 && get("weight") == "" {
		return errors.New("neither canary-weight, canary-by-header nor canary-by-cookie says which requests it gets")
	}
	a.canary = read
	return nil
}

// ingressCanary gives a canary its requests of the paths that another Ingress of its
// namespace has. All that is done with them is the main Ingress's; the backend alone is
// the canary's.
func (c *compiler) ingressCanary(in *ingresses, s *ingressSource) {
	if s.canary == nil || s.canary.total == 0 { // none, or one that can't be read
		return
	}
	s.eachPath(in, func(hostname string, p networkingv1.HTTPIngressPath, at string, _ int) {
		name := s.name()
		backend, err := c.ingressBackend(s.route, s.annotations, &p.Backend)
		if backend.Weight = 1; err != nil {
			c.problem("Ingress", name, ReasonNotFound, at+".backend: "+err.Error())
			return // the canary has nothing, and the others go on as they were
		}
		var main *ingressPath
		if h := in.hosts[hostname]; h != nil {
			main = h.claimed[pathKey(kindOfPath(&p), h.path(s, p.Path))]
		}
		switch {
		case main == nil:
			c.problem("Ingress", name, ReasonNotFound, fmt.Sprintf("%s: host %q, path %s: no other Ingress has them, of which this one could be the canary", at, hostname, p.Path))
		case main.from.name().Namespace != name.Namespace:
			c.problem("Ingress", name, ReasonConflict, fmt.Sprintf("%s: host %q, path %s belongs to Ingress %s of another namespace, whose canary this one can't be", at, hostname, p.Path, main.from.name()))
		case main.canary.Name != "":
			c.problem("Ingress", name, ReasonConflict, fmt.Sprintf("%s: host %q, path %s has the canary %s already, which is older", at, hostname, p.Path, main.canary))
		default:
			main.canary = name
			main.share(s, backend, at)
		}
	})
}

// share gives a canary's backend its requests for the path.
func (p *ingressPath) share(s *ingressSource, backend model.Backend, at string) {
	whole := *p.action
	for _, choice := range s.canary.choices {
		action := whole
		if !choice.never {
			action.Route, action.Rule, action.Backends = s.title(), at, []model.Backend{backend}
		}
		p.special = append(p.special, specialRule{headers: []model.ValueMatch{choice.match}, action: &action})
	}
	if s.canary.weight > 0 {
		first := whole.Backends[0]
		first.Weight, backend.Weight = s.canary.total-s.canary.weight, s.canary.weight
		p.action.Backends = []model.Backend{first, backend}
	}
}
