package tables

import (
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// FlowSchemas prints FlowSchemas.
func FlowSchemas() rest.TableConvertor {
	return of(func(f *flowcontrolv1.FlowSchema) []any {
		distinguisher, missing := none, "?"
		if m := f.Spec.DistinguisherMethod; m != nil {
			distinguisher = string(m.Type)
		}
		for _, c := range f.Status.Conditions {
			if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
				missing = string(c.Status)
			}
		}
		return []any{f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), distinguisher, age(f.CreationTimestamp), missing}
	}, column("Name", "string"), column("PriorityLevel", "string"), column("MatchingPrecedence", "integer"),
		column("DistinguisherMethod", "string"), column("Age", "string"), column("MissingPL", "string"))
}

// PriorityLevelConfigurations prints PriorityLevelConfigurations.
func PriorityLevelConfigurations() rest.TableConvertor {
	return of(func(p *flowcontrolv1.PriorityLevelConfiguration) []any {
		shares, queues, hand, length := none, none, none, none
		switch {
		case p.Spec.Limited != nil:
			shares = number(p.Spec.Limited.NominalConcurrencyShares)
			if q := p.Spec.Limited.LimitResponse.Queuing; q != nil {
				queues, hand, length = number(&q.Queues), number(&q.HandSize), number(&q.QueueLengthLimit)
			}
		case p.Spec.Exempt != nil:
			shares = number(p.Spec.Exempt.NominalConcurrencyShares)
		}
		return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, age(p.CreationTimestamp)}
	}, column("Name", "string"), column("Type", "string"), column("NominalConcurrencyShares", "string"), column("Queues", "string"),
		column("HandSize", "string"), column("QueueLengthLimit", "string"), column("Age", "string"))
}

func number(n *int32) string {
	if n == nil {
		return none
	}
	return strconv.Itoa(int(*n))
}
