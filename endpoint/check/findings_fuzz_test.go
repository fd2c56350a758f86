package check

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzFindings: whatever a machine writes into a report, it is read without a fault, and says no
// more of an endpoint than the report has endpoints.
func FuzzFindings(f *testing.F) {
	f.Add("web", "m1", "10.77.0.12", `{"10.77.0.12":"connection refused"}`, int32(8000), true)
	f.Add("", "", "", "{", int32(-1), false)
	f.Add("web", "m1", "::ffff:10.77.0.12", `{"a":{}}`, int32(70000), true)
	f.Fuzz(func(t *testing.T, service, node, address, reasons string, port int32, listed bool) {
		no := false
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{ReportOf: service, discoveryv1.LabelManagedBy: ReportManager}, Annotations: map[string]string{annotationReasons: reasons}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &no}}, {}},
			Ports:      []discoveryv1.EndpointPort{{}},
		}
		if listed {
			s.Ports[0].Port = &port
		}
		if _, from, is := IsReport(s); is != (service != "") || from != node {
			t.Errorf("is a report: %v, of %q", is, from)
		}
		for _, found := range Findings(s) {
			if found.Health != Unhealthy || !found.Addr.Addr().IsValid() || found.Addr.Addr().Is4In6() {
				t.Errorf("%+v", found)
			}
		}
	})
}
