package gateway

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/acme"
)

const gatewayOfACME = `
metadata: {name: web, namespace: shop, annotations: {fairway.dev/acme: "true", fairway.dev/http3: "true"}}
spec:
  gatewayClassName: fairway
  listeners: [{name: https, port: 443, protocol: HTTPS, hostname: web.example, tls: {certificateRefs: [{name: web-tls}]}}]
`

func (r *rig) certificates() string {
	return reason(r.theGateway("web").Status.Conditions, conditionCertificates)
}

// TestCertificates: a Gateway that asks for certificates is told how they stand.
func TestCertificates(t *testing.T) {
	r := newRig(t, Options{})
	r.makeGateway(gatewayOfACME)
	r.until("word that there is no directory", func() bool { return r.certificates() == "False(NoDirectory)" })
	if e := <-r.events.Events; !strings.Contains(e, "--acme-directory") {
		t.Errorf("Event %q", e)
	}
	r.options.ACME = acme.Options{Directory: "https://127.0.0.1:1/directory"} // nobody answers there
	r.Controller.acme = r.newIssuer()
	go r.Controller.acme.Run(t.Context())
	r.until("word of the failure", func() bool { return r.certificates() == "False(ACMEFailed)" })
	if e := <-r.events.Events; !strings.Contains(e, "ACMEFailed") {
		t.Errorf("Event %q", e)
	}
	// One that is good is left alone.
	_, err := r.core.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "web-tls"}}, metav1.CreateOptions{})
	r.must(err)
	r.reportCertificate(acme.Certificate{Kind: "Gateway", Object: types.NamespacedName{Namespace: "shop", Name: "web"}, Secret: types.NamespacedName{Namespace: "shop", Name: "web-tls"}}, errors.New("refused"))
	if e := <-r.events.Events; !strings.Contains(e, "refused") {
		t.Errorf("Event %q", e)
	}
}

// TestHTTP3: the Service has the port for TCP and for UDP, which are one at the
// engines.
func TestHTTP3(t *testing.T) {
	r := newRig(t, Options{})
	r.makeGateway(gatewayOfACME)
	r.until("a Service", func() bool { return r.theService("web") != nil })
	ports := map[corev1.Protocol]int{}
	for _, p := range r.theService("web").Spec.Ports {
		if p.Port != 443 {
			t.Errorf("port %+v", p)
		}
		ports[p.Protocol] = p.TargetPort.IntValue()
	}
	if len(ports) != 2 || ports[corev1.ProtocolTCP] != ports[corev1.ProtocolUDP] || ports[corev1.ProtocolTCP] == 443 {
		t.Errorf("ports at the engines: %v", ports)
	}
}
