package apiserver

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTokensInSecrets: a token that a Secret holds is its ServiceAccount's for as long
// as the Secret holds it and the ServiceAccount is there; its claims alone prove nothing.
func TestTokensInSecrets(t *testing.T) {
	s := sharedServer(t)
	api, ctx := client(t, s), within(t)
	accounts, secrets := api.CoreV1().ServiceAccounts("default"), api.CoreV1().Secrets("default")
	robot, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	store := func(name string, kind corev1.SecretType, token string) *corev1.Secret {
		t.Helper()
		secret, err := secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
			Type:       kind, Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	issue := func(secret string) string {
		t.Helper()
		token, err := s.SecretToken(robot, secret)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	whose := func(token string, audiences ...string) string {
		t.Helper()
		review, err := api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.User.Username
	}
	const name = "system:serviceaccount:default:robot"
	token := issue("held")
	if got := whose(token); got != "" {
		t.Errorf("a token that no Secret holds is %s's", got)
	}
	held := store("held", corev1.SecretTypeServiceAccountToken, token)
	eventually(t, "that the token is the ServiceAccount's", func() bool { return whose(token) == name })
	if got := whose(token, "elsewhere"); got != "" {
		t.Errorf("for an audience elsewhere the token is %s's", got)
	}
	if got := whose(issue("held")); got != "" {
		t.Errorf("another token of the Secret, which it doesn't hold, is %s's", got)
	}
	forged := token[:strings.LastIndex(token, ".")+1] + "AAAA"
	if got := whose(forged); got != "" {
		t.Errorf("a token with another signature is %s's", got)
	}
	opaque := issue("opaque")
	store("opaque", corev1.SecretTypeOpaque, opaque)
	if got := whose(opaque); got != "" {
		t.Errorf("a token in a Secret of another type is %s's", got)
	}

	held.Data[corev1.ServiceAccountTokenKey] = []byte(issue("held"))
	if _, err := secrets.Update(ctx, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that a token which was replaced is nobody's", func() bool { return whose(token) == "" })
	token = string(held.Data[corev1.ServiceAccountTokenKey])
	eventually(t, "that the one in its place holds", func() bool { return whose(token) == name })
	if err := secrets.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the token ends with its Secret", func() bool { return whose(token) == "" })

	token = issue("last")
	store("last", corev1.SecretTypeServiceAccountToken, token)
	eventually(t, "that the next token holds", func() bool { return whose(token) == name })
	if err := accounts.Delete(ctx, "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the token ends with its ServiceAccount", func() bool { return whose(token) == "" })

	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "nobodys"}, Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a Secret for a token of nobody: %v, want invalid", err)
	}
}
