package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestRewriteGoesOn: Secrets are rewritten although the servers elect a leader meanwhile, and one
// of them is deleted.
func TestRewriteGoesOn(t *testing.T) {
	secret := func(name string) corev1.Secret {
		return corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	var written int
	failing := []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusConflict}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = secret("stays")
		switch {
		case r.URL.Path == "/api/v1/secrets":
			answer = corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}, Items: []corev1.Secret{secret("goes"), secret("stays")}}
		case strings.HasSuffix(r.URL.Path, "/goes"):
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		case r.Method == http.MethodPut && len(failing) > 0:
			code := failing[0]
			failing = failing[1:]
			reason := map[int]metav1.StatusReason{http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusConflict: metav1.StatusReasonConflict}[code]
			w.WriteHeader(code)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code)}
		case r.Method == http.MethodPut:
			written++
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	if n, err := RewriteSecrets(t.Context(), &rest.Config{Host: server.URL}); n != 2 || err != nil || written != 1 {
		t.Errorf("%d Secrets, %d written: %v", n, written, err)
	}
}
