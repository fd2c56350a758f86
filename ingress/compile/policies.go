package compile

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// policies are BackendTLSPolicies by what they are about.
type policies struct {
	list     []*tlsPolicy
	byTarget map[policyTarget]*tlsPolicy
	used     map[*tlsPolicy][]*route
}

// policyTarget is a Service and, if not "", one of its ports.
type policyTarget struct {
	service types.NamespacedName
	port    string
}

type tlsPolicy struct {
	object     *gatewayv1.BackendTLSPolicy
	tls        *model.BackendTLS
	invalid    string // why connections can't be made
	conditions []metav1.Condition
	conflicted bool
}

func (c *compiler) readPolicies() policies {
	p := policies{byTarget: map[policyTarget]*tlsPolicy{}, used: map[*tlsPolicy][]*route{}}
	for _, o := range byAge(c.BackendTLSPolicies) {
		one := c.readPolicy(o)
		p.list = append(p.list, one)
		for _, ref := range o.Spec.TargetRefs {
			if ref.Group != "" || ref.Kind != "Service" {
				continue
			}
			target := policyTarget{types.NamespacedName{Namespace: o.Namespace, Name: string(ref.Name)}, string(value(ref.SectionName, ""))}
			if first := p.byTarget[target]; first != nil {
				one.conflicted = true
				one.conditions[0] = condition(gatewayv1.PolicyConditionAccepted, false, gatewayv1.PolicyReasonConflicted, o.Generation,
					fmt.Sprintf("BackendTLSPolicy %s, which is older, is about the same target", nameOf(first.object)))
				continue
			}
			p.byTarget[target] = one
		}
	}
	return p
}

// readPolicy reads how endpoints are known. With authorities that can't be
// read, nothing is trusted.
func (c *compiler) readPolicy(o *gatewayv1.BackendTLSPolicy) *tlsPolicy {
	v := &o.Spec.Validation
	one := &tlsPolicy{object: o, tls: &model.BackendTLS{ServerName: string(v.Hostname)}}
	for _, n := range v.SubjectAltNames {
		if n.Type == gatewayv1.URISubjectAltNameType {
			one.tls.URIs = append(one.tls.URIs, string(n.URI))
		} else {
			one.tls.Names = append(one.tls.Names, string(n.Hostname))
		}
	}
	accepted := condition(gatewayv1.PolicyConditionAccepted, true, gatewayv1.PolicyReasonAccepted, o.Generation, "")
	refs := condition(gatewayv1.BackendTLSPolicyConditionResolvedRefs, true, gatewayv1.BackendTLSPolicyReasonResolvedRefs, o.Generation, "")
	if len(v.CACertificateRefs) > 0 {
		found := false
		for i, ref := range v.CACertificateRefs {
			name := types.NamespacedName{Namespace: o.Namespace, Name: string(ref.Name)}
			list, err := c.authorities(string(ref.Group), string(ref.Kind), name)
			if err == nil {
				found = true
				one.tls.Authorities = append(one.tls.Authorities, list...)
				continue
			}
			reason := gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef
			if errors.Is(err, errKind) {
				reason = gatewayv1.BackendTLSPolicyReasonInvalidKind
			}
			if refs.Status == metav1.ConditionTrue {
				refs = condition(gatewayv1.BackendTLSPolicyConditionResolvedRefs, false, reason, o.Generation, fmt.Sprintf("spec.validation.caCertificateRefs[%d]: %v", i, err))
			}
		}
		one.tls.Roots = poolOf(one.tls.Authorities)
		if !found {
			one.invalid = "BackendTLSPolicy " + nameOf(o).String() + " has no authority that can be used"
			accepted = condition(gatewayv1.PolicyConditionAccepted, false, gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, o.Generation, one.invalid)
		}
	}
	one.tls.Sign()
	one.conditions = []metav1.Condition{accepted, refs}
	return one
}

// of finds the policy for a Service's port.
func (p *policies) of(service types.NamespacedName, port *corev1.ServicePort) *tlsPolicy {
	if port.Name != "" {
		if one := p.byTarget[policyTarget{service, port.Name}]; one != nil {
			return one
		}
	}
	return p.byTarget[policyTarget{service, ""}]
}

// use notes that a route's requests go by the policy.
func (p *policies) use(one *tlsPolicy, r *route) {
	if one != nil && !slices.Contains(p.used[one], r) {
		p.used[one] = append(p.used[one], r)
	}
}

// notePolicies is called once a route is attached. Policies in conflict with one
// that is used are about the same Gateways.
func (c *compiler) notePolicies(r *route) {
	for _, one := range c.policies.list {
		if !one.conflicted {
			continue
		}
		for _, ref := range one.object.Spec.TargetRefs {
			target := policyTarget{types.NamespacedName{Namespace: one.object.Namespace, Name: string(ref.Name)}, string(value(ref.SectionName, ""))}
			if winner := c.policies.byTarget[target]; winner != nil && slices.Contains(c.policies.used[winner], r) {
				c.policies.use(one, r)
			}
		}
	}
}

// finishPolicies writes the status of policies: one for each Gateway whose
// requests go by them.
func (c *compiler) finishPolicies() {
	for _, one := range c.policies.list {
		var gateways []*gateway
		for _, r := range c.policies.used[one] {
			for _, g := range r.gateways {
				if !slices.Contains(gateways, g) {
					gateways = append(gateways, g)
				}
			}
		}
		slices.SortFunc(gateways, func(a, b *gateway) int { return compareNames(a.name, b.name) })
		var list []gatewayv1.PolicyAncestorStatus
		for _, g := range gateways[:min(len(gateways), 16)] { // as many as the API lets
			group, kind, namespace := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind("Gateway"), gatewayv1.Namespace(g.name.Namespace)
			list = append(list, gatewayv1.PolicyAncestorStatus{
				AncestorRef:    gatewayv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gatewayv1.ObjectName(g.name.Name)},
				ControllerName: Controller, Conditions: one.conditions,
			})
		}
		c.out.Policies[nameOf(one.object)] = list
	}
}
