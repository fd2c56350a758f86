package validation

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/fairway-net/fairway/apiserver/defaults"
)

// TestFlowControlBootstrap: what the server makes is valid, and no default changes it,
// or the server would repair it for ever.
func TestFlowControlBootstrap(t *testing.T) {
	for _, list := range [][]*flowcontrolv1.FlowSchema{bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas} {
		for _, f := range list {
			got := f.DeepCopy()
			defaults.FlowSchema(got)
			compare(t, FlowSchema(got))
			if got.Spec.String() != f.Spec.String() {
				t.Errorf("defaults change %s", f.Name)
			}
		}
	}
	for _, list := range [][]*flowcontrolv1.PriorityLevelConfiguration{bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations} {
		for _, p := range list {
			got := p.DeepCopy()
			defaults.PriorityLevelConfiguration(got)
			compare(t, PriorityLevelConfiguration(got))
			if got.Spec.String() != p.Spec.String() {
				t.Errorf("defaults change %s", p.Name)
			}
		}
	}
}

func TestFlowSchemas(t *testing.T) {
	const rule = `resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], clusterScope: true}]`
	check(t, cases{
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{subjects: [{kind: User, user: {name: u}}], " + rule + "}]}}": nil,
		"{metadata: {name: a}, spec: {}}": {"spec.priorityLevelConfiguration.name: Required value: must reference a priority level"},
		"{metadata: {name: a}, spec: {matchingPrecedence: 1, priorityLevelConfiguration: {name: p}}}":                                                                                                                                  {"spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"},
		"{metadata: {name: a}, spec: {matchingPrecedence: 10001, priorityLevelConfiguration: {name: p}}}":                                                                                                                              {"spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"},
		"{metadata: {name: a}, spec: {matchingPrecedence: -1, priorityLevelConfiguration: {name: p}}}":                                                                                                                                 {"spec.matchingPrecedence: Invalid value: -1: must be a positive value"},
		"{metadata: {name: a}, spec: {distinguisherMethod: {type: ByHost}, priorityLevelConfiguration: {name: p}}}":                                                                                                                    {`spec.distinguisherMethod.type: Unsupported value: "ByHost"`},
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{" + rule + "}]}}":                                                                                                                                {"spec.rules[0].subjects: Required value: subjects must contain at least one value"},
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{subjects: [{kind: User, group: {name: g}}], " + rule + "}]}}":                                                                                    {"spec.rules[0].subjects[0].user: Required value", "spec.rules[0].subjects[0].group: Forbidden"},
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{subjects: [{kind: ServiceAccount, serviceAccount: {name: '*', namespace: UP}}], " + rule + "}]}}":                                                {`spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: "UP"`},
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{subjects: [{kind: Group, group: {name: g}}]}]}}":                                                                                                 {"spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"},
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{subjects: [{kind: Group, group: {name: g}}], nonResourceRules: [{verbs: [get], nonResourceURLs: [a, '/*/b', '/c/*', '/']}]}]}}":                  {`spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash`, `spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/*/b": wildcard can only do suffix matching`},
		"{metadata: {name: a}, spec: {priorityLevelConfiguration: {name: p}, rules: [{subjects: [{kind: Group, group: {name: g}}], resourceRules: [{verbs: [get, '*'], apiGroups: [''], resources: [pods], namespaces: ['*', b]}]}]}}": {`spec.rules[0].resourceRules[0].verbs: Invalid value`, `spec.rules[0].resourceRules[0].namespaces: Invalid value`},
		"{metadata: {name: exempt}, spec: {matchingPrecedence: 2, priorityLevelConfiguration: {name: exempt}}}":                                                                                                                        {"spec: Invalid value: \"exempt\": spec of 'exempt' must equal the fixed value"},
	}, defaults.FlowSchema, FlowSchema)
}

func TestPriorityLevels(t *testing.T) {
	check(t, cases{
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {}}}}}":                                      nil,
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}":                                                  nil,
		"{metadata: {name: a}, spec: {type: Exempt}}":                                                                                             {"spec.type: Invalid value: \"Exempt\": type must be 'Exempt' if and only if name is 'exempt'"},
		"{metadata: {name: a}, spec: {type: Limited}}":                                                                                            {"spec.limited: Required value"},
		"{metadata: {name: a}, spec: {type: Limited, exempt: {}, limited: {limitResponse: {type: Reject}}}}":                                      {"spec.exempt: Forbidden"},
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Queue}}}}":                                                   {"spec.limited.limitResponse.queuing: Required value"},
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Reject, queuing: {}}}}}":                                     {"spec.limited.limitResponse.queuing: Forbidden"},
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 4, handSize: 5}}}}}":                {"spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)"},
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: 999, handSize: 20}}}}}":             {"spec.limited.limitResponse.queuing.handSize: Invalid value: 20: required entropy bits"},
		"{metadata: {name: a}, spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {queues: -1}}}}}":                            {"spec.limited.limitResponse.queuing.queues: Invalid value: -1: must be positive"},
		"{metadata: {name: a}, spec: {type: Limited, limited: {lendablePercent: 101, borrowingLimitPercent: -1, limitResponse: {type: Reject}}}}": {"spec.limited.lendablePercent: Invalid value: 101", "spec.limited.borrowingLimitPercent: Invalid value: -1"},
		"{metadata: {name: exempt}, spec: {type: Exempt, exempt: {lendablePercent: 50}}}":                                                         nil,
		"{metadata: {name: catch-all}, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}":                                          {"spec: Invalid value: \"catch-all\": spec of 'catch-all' must equal the fixed value"},
	}, defaults.PriorityLevelConfiguration, PriorityLevelConfiguration)
}
