package compile

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// compileTLSRoute gives each hostname one rule for all connections.
func (c *compiler) compileTLSRoute(o *gatewayv1.TLSRoute) {
	r := &route{kind: "TLSRoute", object: o, spec: o.Spec.CommonRouteSpec, hostnames: o.Spec.Hostnames}
	var rules []*model.Rule
	for i := range o.Spec.Rules {
		spec := &o.Spec.Rules[i]
		a := &model.Action{Route: r.title(), Rule: string(value(spec.Name, gatewayv1.SectionName(strconv.Itoa(i))))}
		for j := range spec.BackendRefs {
			a.Backends = append(a.Backends, c.backend(r, nil, &spec.BackendRefs[j], fmt.Sprintf("spec.rules[%d].backendRefs[%d]", i, j)))
		}
		a.Unroutable = len(a.Backends) == 0
		rules = append(rules, &model.Rule{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: a})
	}
	for _, a := range c.attach(r) {
		a.add(r, rules)
	}
	c.notePolicies(r)
}

// compileStream hands the ports of a TCPRoute or UDPRoute to the data planes.
// Of several routes for a port, the oldest has it.
func (c *compiler) compileStream(r *route, protocol corev1.Protocol, rules [][]gatewayv1.BackendRef) {
	var backends []StreamBackend
	for i := range rules {
		for j := range rules[i] {
			ref := &rules[i][j]
			service, port, reason, message := c.service(r, &ref.BackendObjectReference)
			if reason != "" {
				r.unresolved(reason, fmt.Sprintf("spec.rules[%d].backendRefs[%d]: %s", i, j, message))
				continue
			}
			if weight := value(ref.Weight, 1); weight > 0 {
				backends = append(backends, StreamBackend{service, port, int(weight)})
			}
		}
		break // a stream has nothing that a second rule could match
	}
	for _, a := range c.attach(r) {
		if a.streams || len(r.gateways) == 0 || a.gateway.rejected != "" {
			continue
		}
		a.streams = true
		c.out.Streams = append(c.out.Streams, Stream{
			Gateway: a.gateway.name, Port: uint16(a.spec.Port), Protocol: protocol, Backends: backends,
		})
	}
}
