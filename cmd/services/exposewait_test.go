//go:build !agentonly

package services

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/diagnose/collect"
)

// TestUsualType: a cluster that has just started is given the time to make its
// pool; one that is old, or knows that it has none, isn't waited for.
func TestUsualType(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		pools  int32 // the request that first finds a pool; 0 is never
		states bool
		early  bool // kube-system comes later
		want   corev1.ServiceType
	}{
		"a pool":              {age: time.Hour, pools: 1, want: corev1.ServiceTypeLoadBalancer},
		"a pool that comes":   {pools: 3, want: corev1.ServiceTypeLoadBalancer},
		"before kube-system":  {pools: 4, early: true, want: corev1.ServiceTypeLoadBalancer},
		"none, as it says":    {states: true, want: corev1.ServiceTypeClusterIP},
		"none in Kubernetes":  {age: time.Hour, want: corev1.ServiceTypeClusterIP},
		"seen between others": {pools: 2, states: true, want: corev1.ServiceTypeLoadBalancer},
	} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.HasSuffix(r.URL.Path, "/ipaddresspools") && c.pools > 0 && asked.Add(1) >= c.pools:
				fmt.Fprint(w, `{"items": [{}]}`)
			case strings.HasSuffix(r.URL.Path, "/configurationstates") && c.states:
				fmt.Fprint(w, `{"items": [{"metadata": {"name": "node-m1"}}, {"metadata": {"name": "controller"}}]}`)
			case strings.HasSuffix(r.URL.Path, "/configurationstates"): // nodes have their own
				fmt.Fprint(w, `{"items": [{"metadata": {"name": "node-m1"}}]}`)
			case c.early && asked.Load() < c.pools-1:
				http.Error(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`, http.StatusNotFound)
			case strings.HasSuffix(r.URL.Path, "/namespaces/kube-system"):
				fmt.Fprintf(w, `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "creationTimestamp": %q}}`,
					time.Now().Add(-c.age).UTC().Format(time.RFC3339))
			default:
				http.NotFound(w, r)
			}
		}))
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf("{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}", server.URL)
		if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		source := collect.Source{Kubeconfig: kubeconfig}
		if got := usualType(t.Context(), &source, io.Discard); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		server.Close()
	}
}

// TestWhyNoAddress: the latest warning about the Service, and of no other.
func TestWhyNoAddress(t *testing.T) {
	event := func(name, message string, age time.Duration) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + message}, Type: corev1.EventTypeWarning, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: "Service", Name: name}, LastTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	if got := whyNoAddress(t.Context(), fake.NewClientset(), s); !strings.Contains(got, "--load-balancer-range") {
		t.Errorf("without Events: %s", got)
	}
	client := fake.NewClientset(event("web", "old", time.Minute), event("web", "the pools are full", time.Second))
	if got := whyNoAddress(t.Context(), client, s); got != "the pools are full" {
		t.Errorf("got %s", got)
	}
	if got := outside(s, "the pools are full"); got != "no address yet: the pools are full" {
		t.Errorf("said: %s", got)
	}
}
