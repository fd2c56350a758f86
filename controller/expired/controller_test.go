package expired

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func secret(name, expiration string, kind corev1.SecretType) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}, Type: kind, Data: map[string][]byte{}}
	if expiration != "" {
		s.Data["expiration"] = []byte(expiration)
	}
	return s
}

func token(name string, ago time.Duration) *corev1.Secret {
	return secret(name, now.Add(-ago).Format(time.RFC3339), corev1.SecretTypeBootstrapToken)
}

func request(name string, created, answered time.Duration) *certificatesv1.CertificateSigningRequest {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-created))}}
	if answered >= 0 {
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(now.Add(-answered)),
		}}
	}
	return r
}

// TestExpired: what has had its time goes, and nothing else.
func TestExpired(t *testing.T) {
	const pending = -1
	objects := []runtime.Object{
		token("long-expired", 25*time.Hour), token("just-expired", time.Hour), token("valid", -time.Hour),
		secret("for-ever", "", corev1.SecretTypeBootstrapToken), secret("unreadable", "tomorrow", corev1.SecretTypeBootstrapToken),
		secret("of-another-kind", now.AddDate(-1, 0, 0).Format(time.RFC3339), corev1.SecretTypeOpaque),
		request("answered-long-ago", 3*time.Hour, 2*time.Hour), request("just-answered", 3*time.Hour, time.Minute),
		request("forgotten", 25*time.Hour, pending), request("waiting", time.Hour, pending),
	}
	client := fake.NewClientset(objects...)
	c := New(client, slog.New(slog.DiscardHandler))
	c.now = func() time.Time { return now }
	if err := c.tokens(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.requests(t.Context()); err != nil {
		t.Fatal(err)
	}
	secrets, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, s := range secrets.Items {
		left = append(left, s.Name)
	}
	for _, r := range requests.Items {
		left = append(left, r.Name)
	}
	slices.Sort(left)
	if want := []string{"for-ever", "just-answered", "just-expired", "of-another-kind", "unreadable", "valid", "waiting"}; !slices.Equal(left, want) {
		t.Errorf("left: %v, want %v", left, want)
	}
}
