package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func services() *kind[corev1.Service, *corev1.Service] {
	return &kind[corev1.Service, *corev1.Service]{
		version: corev1.SchemeGroupVersion, resource: "services", singular: "service",
		shortNames: []string{"svc"}, categories: []string{"all"},
		list:           func() runtime.Object { return &corev1.ServiceList{} },
		createOnUpdate: true,
		// Completed and validated by serviceREST before its addresses are
		// allocated.
		warnings: upstream.ServiceWarnings,
		status: &status[corev1.Service, *corev1.Service]{
			keep:           func(s, old *corev1.Service) { s.Spec = old.Spec },
			validateUpdate: upstream.ServiceStatus,
		},
		fields: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
		returnsDeleted: true,
		table:          tables.Services(),
	}
}

func endpoints(cluster validation.Cluster) *kind[corev1.Endpoints, *corev1.Endpoints] {
	return &kind[corev1.Endpoints, *corev1.Endpoints]{
		version: corev1.SchemeGroupVersion, resource: "endpoints", singular: "endpoints",
		shortNames:     []string{"ep"},
		list:           func() runtime.Object { return &corev1.EndpointsList{} },
		createOnUpdate: true,
		validate:       cluster.Endpoints,
		table:          tables.Endpoints(),
	}
}

func nodes() *kind[corev1.Node, *corev1.Node] {
	return &kind[corev1.Node, *corev1.Node]{
		version: corev1.SchemeGroupVersion, resource: "nodes", singular: "node",
		shortNames: []string{"no"},
		list:       func() runtime.Object { return &corev1.NodeList{} },
		rules:      upstream.Nodes,
		fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": boolString(n.Spec.Unschedulable)}
		},
		table: tables.Nodes(),
	}
}

func configMaps() *kind[corev1.ConfigMap, *corev1.ConfigMap] {
	return &kind[corev1.ConfigMap, *corev1.ConfigMap]{
		version: corev1.SchemeGroupVersion, resource: "configmaps", singular: "configmap",
		shortNames: []string{"cm"},
		list:       func() runtime.Object { return &corev1.ConfigMapList{} },
		rules:      upstream.ConfigMaps,
		table:      tables.ConfigMaps(),
	}
}

func secrets() *kind[corev1.Secret, *corev1.Secret] {
	return &kind[corev1.Secret, *corev1.Secret]{
		version: corev1.SchemeGroupVersion, resource: "secrets", singular: "secret",
		list:   func() runtime.Object { return &corev1.SecretList{} },
		rules:  upstream.Secrets,
		fields: func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
		table:  tables.Secrets(),
	}
}

func serviceAccounts() *kind[corev1.ServiceAccount, *corev1.ServiceAccount] {
	return &kind[corev1.ServiceAccount, *corev1.ServiceAccount]{
		version: corev1.SchemeGroupVersion, resource: "serviceaccounts", singular: "serviceaccount",
		shortNames:     []string{"sa"},
		list:           func() runtime.Object { return &corev1.ServiceAccountList{} },
		validate:       upstream.ServiceAccount,
		returnsDeleted: true,
		table:          tables.ServiceAccounts(),
	}
}

// eventSeconds is how long Events are kept.
const eventSeconds = 3600

func events() *kind[corev1.Event, *corev1.Event] {
	return &kind[corev1.Event, *corev1.Event]{
		version: corev1.SchemeGroupVersion, resource: "events", singular: "event",
		shortNames: []string{"ev"},
		list:       func() runtime.Object { return &corev1.EventList{} },
		rules:      upstream.Events,
		ttl:        eventSeconds,
		fields:     eventFields,
		table:      tables.Events(),
	}
}

func eventFields(e *corev1.Event) fields.Set {
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	o := e.InvolvedObject
	return fields.Set{
		"involvedObject.kind":            o.Kind,
		"involvedObject.namespace":       o.Namespace,
		"involvedObject.name":            o.Name,
		"involvedObject.uid":             string(o.UID),
		"involvedObject.apiVersion":      o.APIVersion,
		"involvedObject.resourceVersion": o.ResourceVersion,
		"involvedObject.fieldPath":       o.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
}

func boolString(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
