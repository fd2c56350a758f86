package apiserver

import (
	"fmt"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNewToken: a token holds from the moment at which its maker hears that it
// is kept. The watch cache, in which tokens are looked up, learns of it later,
// the more so when much is written.
func TestNewToken(t *testing.T) {
	s := sharedServer(t)
	var makers sync.WaitGroup
	defer makers.Wait()
	for maker := range 10 {
		makers.Go(func() {
			for i := range 50 {
				if problem := useNewToken(t, s, fmt.Sprintf("m%d%04d", maker, i)); problem != "" {
					t.Errorf("token %d of maker %d: %s", i, maker, problem)
					return
				}
			}
		})
	}
}

func useNewToken(t *testing.T, s *Server, id string) (problem string) {
	api, ctx := client(t, s), within(t)
	_, err := api.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err.Error()
	}
	review, err := api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: id + ".0123456789abcdef"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err.Error()
	}
	return review.Status.Error
}
