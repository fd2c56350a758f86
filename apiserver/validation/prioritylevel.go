package validation

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"
)

const mostQueues = 10 * 1000 * 1000

// PriorityLevelConfiguration validates a PriorityLevelConfiguration. Only the one of
// administrators may be exempt, and it always is.
func PriorityLevelConfiguration(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	errs := metadata(p, false, apivalidation.NameIsDNSSubdomain)
	exempt := p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	if exempt != (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs, field.Invalid(specPath.Child("type"), p.Spec.Type, "type must be 'Exempt' if and only if name is 'exempt'"))
	}
	errs = append(errs, oneOf(specPath.Child("type"), p.Spec.Type, flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)...)
	errs = append(errs, limited(specPath.Child("limited"), p.Spec)...)
	if e := p.Spec.Exempt; e != nil {
		at := specPath.Child("exempt")
		if !exempt {
			errs = append(errs, field.Forbidden(at, "must be nil if the type is Limited"))
		}
		errs = append(errs, atLeastZero(at.Child("nominalConcurrencyShares"), e.NominalConcurrencyShares, "must be a non-negative integer")...)
		errs = append(errs, percent(at.Child("lendablePercent"), e.LendablePercent)...)
	}
	return append(errs, fixedLevel(p)...)
}

// fixedLevel refuses changes of what the server relies on. The shares of the exempt
// level are what it lends, and free.
func fixedLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if fixed.Name != p.Name {
			continue
		}
		want := fixed.Spec.DeepCopy()
		if p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			want.Exempt = p.Spec.Exempt
		}
		if !equality.Semantic.DeepEqual(*want, p.Spec) {
			return field.ErrorList{field.Invalid(specPath, p.Name, fmt.Sprintf("spec of '%s' must equal the fixed value", p.Name))}
		}
	}
	return nil
}

func limited(at *field.Path, spec flowcontrolv1.PriorityLevelConfigurationSpec) field.ErrorList {
	l := spec.Limited
	switch wanted := spec.Type == flowcontrolv1.PriorityLevelEnablementLimited; {
	case wanted && l == nil:
		return field.ErrorList{field.Required(at, "must not be empty when type is Limited")}
	case !wanted && l != nil:
		return field.ErrorList{field.Forbidden(at, "must be nil if the type is not Limited")}
	case l == nil:
		return nil
	}
	errs := atLeastZero(at.Child("nominalConcurrencyShares"), l.NominalConcurrencyShares, "must be a non-negative integer")
	errs = append(errs, percent(at.Child("lendablePercent"), l.LendablePercent)...)
	errs = append(errs, atLeastZero(at.Child("borrowingLimitPercent"), l.BorrowingLimitPercent, "if specified, must be a non-negative integer")...)
	response := at.Child("limitResponse")
	errs = append(errs, oneOf(response.Child("type"), l.LimitResponse.Type, flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	switch q, queue := l.LimitResponse.Queuing, l.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue; {
	case queue && q == nil:
		errs = append(errs, field.Required(response.Child("queuing"), "must not be empty if limited.limitResponse.type is Queue"))
	case !queue && q != nil:
		errs = append(errs, field.Forbidden(response.Child("queuing"), "must be nil if limited.limitResponse.type is not Queue"))
	case q != nil:
		errs = append(errs, queuing(response.Child("queuing"), q)...)
	}
	return errs
}

func queuing(at *field.Path, q *flowcontrolv1.QueuingConfiguration) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		value int32
	}{{"queueLengthLimit", q.QueueLengthLimit}, {"queues", q.Queues}, {"handSize", q.HandSize}} {
		if n.value <= 0 {
			errs = append(errs, field.Invalid(at.Child(n.name), n.value, "must be positive"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	hand := at.Child("handSize")
	switch {
	case q.Queues > mostQueues:
		return field.ErrorList{field.Invalid(at.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", mostQueues))}
	case q.HandSize > q.Queues:
		return field.ErrorList{field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))}
	}
	if bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); bits > shufflesharding.MaxHashBits {
		return field.ErrorList{field.Invalid(hand, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits))}
	}
	return nil
}

func atLeastZero(at *field.Path, n *int32, message string) field.ErrorList {
	if n != nil && *n < 0 {
		return field.ErrorList{field.Invalid(at, *n, message)}
	}
	return nil
}

func percent(at *field.Path, n *int32) field.ErrorList {
	if n != nil && (*n < 0 || *n > 100) {
		return field.ErrorList{field.Invalid(at, *n, "must be between 0 and 100, inclusive")}
	}
	return nil
}
