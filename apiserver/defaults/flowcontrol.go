package defaults

import flowcontrolv1 "k8s.io/api/flowcontrol/v1"

// FlowSchema gives a schema without a precedence one in the middle.
func FlowSchema(f *flowcontrolv1.FlowSchema) { setDefault(&f.Spec.MatchingPrecedence, 1000) }

// PriorityLevelConfiguration fills in shares and queues.
func PriorityLevelConfiguration(p *flowcontrolv1.PriorityLevelConfiguration) {
	if p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
		setPointer(&p.Spec.Exempt, flowcontrolv1.ExemptPriorityLevelConfiguration{})
	}
	if e := p.Spec.Exempt; e != nil {
		setPointer(&e.NominalConcurrencyShares, 0)
		setPointer(&e.LendablePercent, 0)
	}
	l := p.Spec.Limited
	if l == nil {
		return
	}
	setPointer(&l.NominalConcurrencyShares, 30)
	setPointer(&l.LendablePercent, 0)
	if q := l.LimitResponse.Queuing; q != nil {
		setDefault(&q.Queues, 64)
		setDefault(&q.HandSize, 8)
		setDefault(&q.QueueLengthLimit, 50)
	}
}
