package tables

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// ValidatingWebhookConfigurations prints ValidatingWebhookConfigurations.
func ValidatingWebhookConfigurations() rest.TableConvertor {
	return of(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) []any {
		return []any{c.Name, int64(len(c.Webhooks)), age(c.CreationTimestamp)}
	}, column("Name", "string"), column("Webhooks", "integer"), column("Age", "string"))
}

// MutatingWebhookConfigurations prints MutatingWebhookConfigurations.
func MutatingWebhookConfigurations() rest.TableConvertor {
	return of(func(c *admissionregistrationv1.MutatingWebhookConfiguration) []any {
		return []any{c.Name, int64(len(c.Webhooks)), age(c.CreationTimestamp)}
	}, column("Name", "string"), column("Webhooks", "integer"), column("Age", "string"))
}
