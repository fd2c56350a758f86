package registry

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func flowSchemas() *kind[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema] {
	return &kind[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema]{
		version: flowcontrolv1.SchemeGroupVersion, resource: "flowschemas", singular: "flowschema",
		list:          func() runtime.Object { return &flowcontrolv1.FlowSchemaList{} },
		clusterScoped: true,
		prepareCreate: func(f *flowcontrolv1.FlowSchema) { f.Status = flowcontrolv1.FlowSchemaStatus{} },
		prepareUpdate: func(f, old *flowcontrolv1.FlowSchema) { f.Status = old.Status },
		generation:    func(f, old *flowcontrolv1.FlowSchema) bool { return !equality.Semantic.DeepEqual(f.Spec, old.Spec) },
		validate:      validation.FlowSchema,
		status: &status[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema]{
			keep: func(f, old *flowcontrolv1.FlowSchema) {
				// As in Kubernetes: managed fields are all of the metadata that goes with a status.
				managed := f.ManagedFields
				f.Spec, f.ObjectMeta = old.Spec, old.ObjectMeta
				f.ManagedFields = managed
			},
			validateUpdate: validation.FlowSchemaStatus,
		},
		table: tables.FlowSchemas(),
	}
}

func priorityLevels() *kind[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration] {
	return &kind[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration]{
		version: flowcontrolv1.SchemeGroupVersion, resource: "prioritylevelconfigurations", singular: "prioritylevelconfiguration",
		list:          func() runtime.Object { return &flowcontrolv1.PriorityLevelConfigurationList{} },
		clusterScoped: true,
		prepareCreate: func(p *flowcontrolv1.PriorityLevelConfiguration) {
			p.Status = flowcontrolv1.PriorityLevelConfigurationStatus{}
		},
		prepareUpdate: func(p, old *flowcontrolv1.PriorityLevelConfiguration) { p.Status = old.Status },
		generation: func(p, old *flowcontrolv1.PriorityLevelConfiguration) bool {
			return !equality.Semantic.DeepEqual(p.Spec, old.Spec)
		},
		validate: validation.PriorityLevelConfiguration,
		status: &status[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration]{
			keep: func(p, old *flowcontrolv1.PriorityLevelConfiguration) { p.Spec = old.Spec },
		},
		table: tables.PriorityLevelConfigurations(),
	}
}
