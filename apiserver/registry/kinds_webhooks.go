package registry

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

func validatingWebhooks() *kind[admissionregistrationv1.ValidatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration] {
	type configuration = *admissionregistrationv1.ValidatingWebhookConfiguration
	return &kind[admissionregistrationv1.ValidatingWebhookConfiguration, configuration]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "validatingwebhookconfigurations", singular: "validatingwebhookconfiguration",
		list:  func() runtime.Object { return &admissionregistrationv1.ValidatingWebhookConfigurationList{} },
		rules: upstream.ValidatingWebhookConfigurations,
		table: tables.ValidatingWebhookConfigurations(),
	}
}

func mutatingWebhooks() *kind[admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfiguration] {
	type configuration = *admissionregistrationv1.MutatingWebhookConfiguration
	return &kind[admissionregistrationv1.MutatingWebhookConfiguration, configuration]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingwebhookconfigurations", singular: "mutatingwebhookconfiguration",
		list:  func() runtime.Object { return &admissionregistrationv1.MutatingWebhookConfigurationList{} },
		rules: upstream.MutatingWebhookConfigurations,
		table: tables.MutatingWebhookConfigurations(),
	}
}
