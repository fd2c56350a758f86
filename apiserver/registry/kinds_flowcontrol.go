package registry

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

func flowSchemas() *kind[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema] {
	return &kind[flowcontrolv1.FlowSchema, *flowcontrolv1.FlowSchema]{
		version: flowcontrolv1.SchemeGroupVersion, resource: "flowschemas", singular: "flowschema",
		list:  func() runtime.Object { return &flowcontrolv1.FlowSchemaList{} },
		rules: upstream.FlowSchemas,
		table: tables.FlowSchemas(),
	}
}

func priorityLevels() *kind[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration] {
	return &kind[flowcontrolv1.PriorityLevelConfiguration, *flowcontrolv1.PriorityLevelConfiguration]{
		version: flowcontrolv1.SchemeGroupVersion, resource: "prioritylevelconfigurations", singular: "prioritylevelconfiguration",
		list:  func() runtime.Object { return &flowcontrolv1.PriorityLevelConfigurationList{} },
		rules: upstream.PriorityLevelConfigurations,
		table: tables.PriorityLevelConfigurations(),
	}
}
