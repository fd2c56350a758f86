package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// webhookSeconds is how long a webhook is waited for unless it says otherwise.
const webhookSeconds = 10

// ValidatingWebhookConfiguration fills in the defaults of validating webhooks.
func ValidatingWebhookConfiguration(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		webhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.Rules, w.ClientConfig.Service)
	}
}

// MutatingWebhookConfiguration fills in the defaults of mutating webhooks.
func MutatingWebhookConfiguration(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		webhook(&w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds, w.Rules, w.ClientConfig.Service)
		setPointer(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
}

func webhook(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector,
	timeout **int32, rules []admissionregistrationv1.RuleWithOperations, service *admissionregistrationv1.ServiceReference) {
	setPointer(failure, admissionregistrationv1.Fail)
	setPointer(match, admissionregistrationv1.Equivalent)
	setPointer(namespaces, metav1.LabelSelector{})
	setPointer(objects, metav1.LabelSelector{})
	setPointer(timeout, webhookSeconds)
	for i := range rules {
		setPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
	if service != nil {
		setPointer(&service.Port, 443)
	}
}
