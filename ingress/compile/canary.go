package compile

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/model"
)

// canary is which requests of another Ingress's paths an Ingress gets: those with a
// header or a cookie, and a share of all others.
type canary struct {
	matches       [][]model.ValueMatch // any of them
	weight, total int
}

// readCanary reads all annotations of a canary.
func readCanary(_ *compiler, o *networkingv1.Ingress, a *annotations, t string) error {
	on := false
	if err := readBool(&on, t); err != nil || !on {
		return err
	}
	// One that can't be read gets nothing, and takes nothing.
	a.canary = &canary{}
	read := &canary{total: 100}
	get := func(name string) string { return o.Annotations[nginx+"canary-"+name] }
	if name := get("by-header"); name != "" {
		m := model.ValueMatch{Name: http.CanonicalHeaderKey(name), Value: or(get("by-header-value"), "always")}
		if pattern := get("by-header-pattern"); pattern != "" && get("by-header-value") == "" {
			expression, err := regexp.Compile(pattern)
			if err != nil {
				return fmt.Errorf("canary-by-header-pattern: %w", err)
			}
			m.Regexp = expression
		}
		read.matches = append(read.matches, []model.ValueMatch{m})
	}
	if name := get("by-cookie"); name != "" {
		expression := regexp.MustCompile(`(?:^|[;,])\s*` + regexp.QuoteMeta(name) + `=always\s*(?:[;,]|$)`)
		read.matches = append(read.matches, []model.ValueMatch{{Name: "Cookie", Value: name, Regexp: expression}})
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
	if len(read.matches) == 0 && read.weight == 0 {
		return errors.New("neither canary-weight, canary-by-header nor canary-by-cookie says which requests it gets")
	}
	a.canary = read
	return nil
}

// canaryRule gives a canary its requests of a path that another Ingress has.
func (c *compiler) canaryRule(in *ingresses, r *route, a *annotations, host string, match model.Match, backend model.Backend, bind func(*model.Action), at string, index int) {
	main := in.mains[mainKey(host, &match)]
	if main == nil {
		c.problem("Ingress", r.name(), ReasonNotFound, fmt.Sprintf("%s: host %q, path %s: no other Ingress has them, of which this one could be the canary", at, host, match.Path))
		return
	}
	for _, values := range a.canary.matches {
		one := match
		one.Headers = values
		action := a.action(r, at)
		bind(action)
		action.Backends = []model.Backend{backend}
		in.add(host, orderedRule{&model.Rule{Match: one, Action: action}, r, index}, main.secure, main.redirected)
	}
	if a.canary.weight > 0 && len(main.action.Backends) == 1 {
		main.action.Backends[0].Weight = a.canary.total - a.canary.weight
		backend.Weight = a.canary.weight
		main.action.Backends = append(main.action.Backends, backend)
	}
}

// mainRule is a path that canaries may have a share of.
type mainRule struct {
	action             *model.Action
	secure, redirected bool
}

func mainKey(host string, m *model.Match) string {
	return fmt.Sprintf("%s %d %s", host, m.Kind, m.Path)
}

// readClients reads which certificates clients must have. A Secret of another
// namespace is not read.
func readClients(c *compiler, o *networkingv1.Ingress, a *annotations, t string) error {
	name := types.NamespacedName{Namespace: o.Namespace, Name: t}
	if namespace, short, found := strings.Cut(t, "/"); found {
		if name.Name = short; namespace != o.Namespace {
			return fmt.Errorf("%s is in another namespace, and is not read", t)
		}
	}
	switch verify := or(o.Annotations[nginx+"auth-tls-verify-client"], "on"); verify {
	case "off":
		return nil
	case "on":
		list, err := c.authorities("", "Secret", name)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		for _, authority := range list {
			roots.AddCert(authority)
		}
		a.clients = &model.ClientValidation{Roots: roots, Authorities: list}
		return nil
	default:
		return errors.New("auth-tls-verify-client: " + verify + " is not supported: must be on or off")
	}
}
