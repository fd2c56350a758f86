package gateway

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/acme"
	ingress "github.com/fairway-net/fairway/ingress/compile"
)

// conditionCertificates, of a Gateway that asks for certificates, says whether it
// has them.
const conditionCertificates = "fairway.dev/Certificates"

// newIssuer makes what obtains certificates; nil without a directory.
func (c *Controller) newIssuer() *acme.Issuer {
	o := c.options.ACME
	if o.Directory == "" {
		return nil
	}
	o.Core, o.Log = c.watch.Core, c.log
	o.Namespace = cmp.Or(c.options.Namespace, metav1.NamespaceSystem)
	o.Tell = c.reportCertificate
	return acme.New(o)
}

// want has the certificates obtained that are asked for.
func (c *Controller) want(out *ingress.Output) {
	c.wanted = out.Wanted
	if c.acme == nil {
		for _, w := range out.Wanted {
			out.Problems = append(out.Problems, ingress.Problem{Kind: w.Kind, Object: w.Object, Reason: ingress.ReasonRefused,
				Message: "annotation " + ingress.AnnotationACME + ": no certificate is obtained, since the controller runs without --acme-directory"})
		}
		return
	}
	list := make([]acme.Certificate, len(out.Wanted))
	for i, w := range out.Wanted {
		list[i] = acme.Certificate{Secret: w.Secret, Hosts: w.Hosts, Kind: w.Kind, Object: w.Object, At: w.At}
	}
	c.acme.Want(list)
}

// reportCertificate writes an Event about an attempt, and has statuses written.
func (c *Controller) reportCertificate(w acme.Certificate, err error) {
	about := &corev1.ObjectReference{Kind: w.Kind, Namespace: w.Object.Namespace, Name: w.Object.Name, APIVersion: apiVersion(w.Kind)}
	if err != nil {
		c.log.Warn("certificate not obtained; trying again", "secret", w.Secret, "error", err)
		c.recorder.Event(about, corev1.EventTypeWarning, "ACMEFailed", err.Error())
	} else {
		c.recorder.Eventf(about, corev1.EventTypeNormal, "CertificateObtained", "Secret %s has a new certificate for %v", w.Secret.Name, w.Hosts)
	}
	c.watch.Wake()
}

// certificateConditions say how a Gateway's certificates stand; none if it asks
// for none.
func (c *Controller) certificateConditions(g *gatewayv1.Gateway) []metav1.Condition {
	i := slices.IndexFunc(c.wanted, func(w ingress.Wanted) bool {
		return w.Kind == "Gateway" && w.Object.Namespace == g.Namespace && w.Object.Name == g.Name
	})
	if i < 0 {
		return nil
	}
	out := metav1.Condition{Type: conditionCertificates, Status: metav1.ConditionTrue, Reason: "Obtained", ObservedGeneration: g.Generation}
	if c.acme == nil {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "NoDirectory", "the controller runs without --acme-directory"
		return []metav1.Condition{out}
	}
	for _, w := range c.wanted[i:] {
		if w.Kind != "Gateway" || w.Object.Namespace != g.Namespace || w.Object.Name != g.Name {
			continue
		}
		if err := c.acme.Failure(w.Secret); err != nil {
			out.Status, out.Reason, out.Message = metav1.ConditionFalse, "ACMEFailed", err.Error()
			break
		}
		if c.objects.Secrets[w.Secret] == nil {
			out.Status, out.Reason, out.Message = metav1.ConditionFalse, "Pending", "a certificate for Secret "+w.Secret.Name+" is being obtained"
		}
	}
	out.Message = out.Message[:min(len(out.Message), 32768)]
	return []metav1.Condition{out}
}
