package examine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// TestExplainSaysThatNobodyAnnounces: where nodes would forward, and nobody outside gets to one.
func TestExplainSaysThatNobodyAnnounces(t *testing.T) {
	said := announce.Report{Node: "n1", Addresses: []announce.Address{{Address: netip.MustParseAddr("10.77.0.100"), WhyNot: "no advertisement selects it"}}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(said); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	find := func() []agentlink.Found {
		return []agentlink.Found{{Client: agentlink.Elsewhere("node n1", http.DefaultTransport, server.URL), Node: "n1", Status: agentlink.Status{Node: "n1"}}}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{v1beta1.AnnotationFromPool: "pool"}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.77.0.100"}}
	report := &explain.Report{Service: &explain.ServiceInfo{Namespace: "default", Name: "web"}, Notes: []string{"another"}}
	(&Examiner{}).noteAnnounced(t.Context(), report, &explain.Objects{Services: []*corev1.Service{s}}, find)
	// One of two that the user has no right to ask may well announce it.
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	both := func() []agentlink.Found {
		return append(find(), agentlink.Found{Node: "n2", Err: fmt.Errorf("find the agents' pods: %w", forbidden)})
	}
	unknown := &explain.Report{Service: report.Service}
	(&Examiner{}).noteAnnounced(t.Context(), unknown, &explain.Objects{Services: []*corev1.Service{s}}, both)
	if len(unknown.Notes) != 0 {
		t.Errorf("of nodes that can't be asked: notes %q", unknown.Notes)
	}
	if len(report.Notes) != 2 || !strings.Contains(report.Notes[0], "FW131") || !strings.Contains(report.Notes[0], "n1: no advertisement selects it") {
		t.Errorf("notes %q", report.Notes)
	}
}
