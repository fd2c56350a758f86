package registry

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
	"github.com/fairway-net/fairway/apiserver/validation"
)

type csr = certificatesv1.CertificateSigningRequest

// csrSeconds is how long requests for certificates are kept.
const csrSeconds = 24 * 3600

func certificateSigningRequests() *kind[csr, *csr] {
	return &kind[csr, *csr]{
		version: certificatesv1.SchemeGroupVersion, resource: "certificatesigningrequests", singular: "certificatesigningrequest",
		shortNames: []string{"csr"},
		list:       func() runtime.Object { return &certificatesv1.CertificateSigningRequestList{} },
		rules:      upstream.CertificateSigningRequests,
		ttl:        csrSeconds,
		status: &status[csr, *csr]{
			keep:           keepDecision,
			validateUpdate: validation.IssuedCertificate,
		},
		fields: func(c *csr) fields.Set { return fields.Set{"spec.signerName": c.Spec.SignerName} },
		table:  tables.CertificateSigningRequests(),
	}
}

func isDecision(t certificatesv1.RequestConditionType) bool {
	return t == certificatesv1.CertificateApproved || t == certificatesv1.CertificateDenied
}

// keepDecision keeps the signer from deciding what the approver should.
func keepDecision(c, old *csr) {
	c.Spec = old.Spec
	var conditions []certificatesv1.CertificateSigningRequestCondition
	for _, condition := range old.Status.Conditions {
		if isDecision(condition.Type) {
			conditions = append(conditions, condition)
		}
	}
	for _, condition := range c.Status.Conditions {
		if !isDecision(condition.Type) {
			conditions = append(conditions, condition)
		}
	}
	c.Status.Conditions = conditions
	stamp(conditions)
}

// stamp dates conditions that have no date.
func stamp(conditions []certificatesv1.CertificateSigningRequestCondition) {
	now := metav1.Now()
	for i := range conditions {
		if conditions[i].LastUpdateTime.IsZero() {
			conditions[i].LastUpdateTime = now
		}
		if conditions[i].LastTransitionTime.IsZero() {
			conditions[i].LastTransitionTime = now
		}
	}
}

func (o *opener) certificates(access Access) Resources {
	out := Resources{}
	main, status := o.add(out, certificateSigningRequests())
	if o.err != nil {
		return nil
	}
	out["certificatesigningrequests"] = &csrREST{main}
	out["certificatesigningrequests/status"] = &checkedStatus{statusREST: status, check: access.signer("sign")}
	out["certificatesigningrequests/approval"] = newCheckedStatus(main.Store, approvalStrategy{main.UpdateStrategy}, access.signer("approve"))
	return out
}

// signer asks for a verb on the signer that the request names, as Kubernetes'
// admission of approvals and certificates does.
func (a Access) signer(verb string) Check {
	return func(ctx context.Context, obj, _ runtime.Object) error {
		u, err := requester(ctx)
		if err != nil {
			return err
		}
		c := obj.(*csr)
		decision, reason, err := a.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: u, Verb: verb, APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: c.Spec.SignerName, ResourceRequest: true,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return nil
		}
		return apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), c.Name,
			fmt.Errorf("user not permitted to %s requests with signerName %q: %s", verb, c.Spec.SignerName, reason))
	}
}

// csrREST writes the requester into a certificate request: approvers decide by that.
type csrREST struct{ *REST }

// Create implements rest.Creater.
func (r *csrREST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	u, err := requester(ctx)
	if err != nil {
		return nil, err
	}
	c := obj.(*csr)
	c.Spec.Username, c.Spec.UID, c.Spec.Groups = u.GetName(), u.GetUID(), u.GetGroups()
	c.Spec.Extra = map[string]certificatesv1.ExtraValue{}
	for key, values := range u.GetExtra() {
		c.Spec.Extra[key] = values
	}
	return r.REST.Create(ctx, obj, validate, options)
}

// approvalStrategy lets the decision change and nothing else.
type approvalStrategy struct{ rest.RESTUpdateStrategy }

func (approvalStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

func (approvalStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	c, was := obj.(*csr), old.(*csr)
	c.Spec = was.Spec
	conditions := c.Status.Conditions
	c.Status = was.Status
	c.Status.Conditions = conditions
	stamp(conditions)
}

func (approvalStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.Approval(obj.(*csr), old.(*csr))
}
