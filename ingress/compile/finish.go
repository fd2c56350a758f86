package compile

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// finishGateways writes the statuses of Gateways and ListenerSets.
func (c *compiler) finishGateways() {
	for _, s := range c.sets {
		c.out.ListenerSets[nameOf(s.object)] = s.status()
	}
	for name, g := range c.gateways {
		c.out.Gateways[name] = &GatewayResult{Status: g.status(), Ports: g.ports()}
	}
}

// status is without addresses, and as if Programmed needed none.
func (g *gateway) status() gatewayv1.GatewayStatus {
	generation := g.object.Generation
	usable, valid := 0, true
	var s gatewayv1.GatewayStatus
	for _, l := range g.listeners {
		if l.accepted {
			usable++
		}
		valid = valid && l.accepted && l.refsReason == ""
		s.Listeners = append(s.Listeners, l.status(generation))
	}
	attached := int32(0)
	for _, set := range g.sets {
		for _, l := range set.listeners {
			if l.accepted {
				usable++
			}
		}
		if set.accepted() {
			attached++
		}
	}
	s.AttachedListenerSets = &attached
	accepted, reason, message := true, gatewayv1.GatewayReasonAccepted, ""
	switch {
	case g.rejected != "":
		accepted, reason, message = false, g.rejected, g.rejectedMessage
	case usable == 0:
		accepted, reason, message = false, gatewayv1.GatewayReasonListenersNotValid, "no listener can be accepted; their conditions say why"
	case slices.ContainsFunc(g.listeners, func(l *listener) bool { return !l.accepted }):
		reason, message = gatewayv1.GatewayReasonListenersNotValid, "some listeners can't be accepted; their conditions say why"
	}
	s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionAccepted, accepted, reason, generation, message))
	if accepted {
		s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionProgrammed, true, gatewayv1.GatewayReasonProgrammed, generation, ""))
	} else {
		s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionProgrammed, false, gatewayv1.GatewayReasonInvalid, generation, message))
	}
	switch {
	case g.refsReason != "":
		s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionResolvedRefs, false, g.refsReason, generation, g.refsMessage))
	case !valid && slices.ContainsFunc(g.listeners, func(l *listener) bool { return l.refsReason != "" }):
		s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionResolvedRefs, false, gatewayv1.GatewayReasonListenersNotResolved, generation, "references of listeners lead nowhere; their conditions say which"))
	default:
		s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionResolvedRefs, true, gatewayv1.GatewayReasonResolvedRefs, generation, ""))
	}
	if g.insecure {
		s.Conditions = append(s.Conditions, condition(gatewayv1.GatewayConditionInsecureFrontendValidationMode, true, gatewayv1.GatewayReasonConfigurationChanged, generation, "AllowInsecureFallback lets clients in without a valid certificate"))
	}
	return s
}

// ports lists what the Gateway's Service must have.
func (g *gateway) ports() []Port {
	var list []Port
	for _, l := range g.all() {
		if g.rejected != "" || !l.usable() {
			continue
		}
		p := Port{Number: uint16(l.spec.Port), Protocol: corev1.Protocol(l.transport()), Stream: l.isStream()}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
		if p.Protocol = corev1.ProtocolUDP; g.hasHTTP3(l) && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol))
	})
	return list
}

func (l *listener) status(generation int64) gatewayv1.ListenerStatus {
	kinds := l.kinds
	if kinds == nil {
		kinds = []gatewayv1.RouteGroupKind{}
	}
	return gatewayv1.ListenerStatus{Name: l.spec.Name, SupportedKinds: kinds, AttachedRoutes: l.attached, Conditions: l.conditions(generation)}
}

func (l *listener) conditions(generation int64) []metav1.Condition {
	accepted := condition(gatewayv1.ListenerConditionAccepted, true, gatewayv1.ListenerReasonAccepted, generation, "")
	programmed := condition(gatewayv1.ListenerConditionProgrammed, true, gatewayv1.ListenerReasonProgrammed, generation, "")
	conflicted := condition(gatewayv1.ListenerConditionConflicted, false, gatewayv1.ListenerReasonNoConflicts, generation, "")
	refs := condition(gatewayv1.ListenerConditionResolvedRefs, true, gatewayv1.ListenerReasonResolvedRefs, generation, "")
	switch {
	case l.isConflicted:
		accepted = condition(gatewayv1.ListenerConditionAccepted, false, l.reason, generation, l.message)
		programmed = condition(gatewayv1.ListenerConditionProgrammed, false, l.reason, generation, l.message)
		conflicted = condition(gatewayv1.ListenerConditionConflicted, true, l.reason, generation, l.message)
	case !l.accepted:
		accepted = condition(gatewayv1.ListenerConditionAccepted, false, l.reason, generation, l.message)
		programmed = condition(gatewayv1.ListenerConditionProgrammed, false, gatewayv1.ListenerReasonInvalid, generation, l.message)
	case l.gateway.rejected != "":
		programmed = condition(gatewayv1.ListenerConditionProgrammed, false, gatewayv1.ListenerReasonPending, generation, "the Gateway isn't accepted")
	case l.uncertifiable || l.refsReason != "" && len(l.kinds) == 0:
		programmed = condition(gatewayv1.ListenerConditionProgrammed, false, gatewayv1.ListenerReasonInvalid, generation, l.refsMessage)
	}
	if l.refsReason != "" {
		refs = condition(gatewayv1.ListenerConditionResolvedRefs, false, l.refsReason, generation, l.refsMessage)
	}
	return []metav1.Condition{accepted, programmed, conflicted, refs}
}

// accepted reports whether the set has a listener that can serve: one without
// any certificate can't.
func (s *listenerSet) accepted() bool {
	return s.rejected == "" && s.gateway.rejected == "" && slices.ContainsFunc(s.listeners, (*listener).usable)
}

func (s *listenerSet) status() *gatewayv1.ListenerSetStatus {
	generation := s.object.Generation
	out := &gatewayv1.ListenerSetStatus{}
	for _, l := range s.listeners {
		out.Listeners = append(out.Listeners, gatewayv1.ListenerEntryStatus(l.status(generation)))
	}
	reason, message := gatewayv1.ListenerSetReasonAccepted, ""
	switch {
	case s.rejected != "":
		reason, message = s.rejected, s.message
	case s.gateway.rejected != "":
		reason, message = gatewayv1.ListenerSetReasonParentNotAccepted, "the Gateway isn't accepted"
	case !s.accepted():
		reason, message = gatewayv1.ListenerSetReasonListenersNotValid, "no listener can be accepted; their conditions say why"
	case slices.ContainsFunc(s.listeners, func(l *listener) bool { return !l.usable() }):
		reason, message = gatewayv1.ListenerSetReasonListenersNotValid, "some listeners can't be accepted; their conditions say why"
	}
	out.Conditions = append(out.Conditions, condition(gatewayv1.ListenerSetConditionAccepted, s.accepted(), reason, generation, message))
	if s.accepted() {
		reason, message = gatewayv1.ListenerSetReasonProgrammed, ""
	}
	out.Conditions = append(out.Conditions, condition(gatewayv1.ListenerSetConditionProgrammed, s.accepted(), reason, generation, message))
	return out
}
