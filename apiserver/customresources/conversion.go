package customresources

import (
	"context"
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/admission"
)

// errWebhook says what can be done instead.
var errWebhook = errors.New("spec.conversion.strategy: Webhook is not supported: this server converts no objects by webhook; " +
	"use None, which changes apiVersion only, and one schema for all versions")

// conversionAdmission refuses definitions whose versions a webhook converts:
// their objects could not be read.
type conversionAdmission struct{ *admission.Handler }

// NewConversionAdmission returns an admission plugin that refuses
// CustomResourceDefinitions with conversion webhooks.
func NewConversionAdmission() admission.ValidationInterface {
	return conversionAdmission{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (conversionAdmission) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiextensions.Resource("customresourcedefinitions") {
		return nil
	}
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if ok && crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensions.WebhookConverter {
		return admission.NewForbidden(a, errWebhook)
	}
	return nil
}
