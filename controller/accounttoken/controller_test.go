package accounttoken

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
)

func account(uid types.UID) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: uid},
		Secrets:    []corev1.ObjectReference{{Name: "token"}, {Name: "other"}},
	}
}

func secret(name string, uid types.UID) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if uid != "" {
		s.Annotations[corev1.ServiceAccountUIDKey] = string(uid)
	}
	return s
}

// numbered makes tokens with a number.
type numbered struct {
	issued   int
	outdated string // a token whose key is being replaced
}

func (n *numbered) SecretToken(a *corev1.ServiceAccount, secret string) (string, error) {
	n.issued++
	return fmt.Sprintf("%s %s %d", a.UID, secret, n.issued), nil
}

func (n *numbered) IsOutdated(token string) bool { return token == n.outdated }

// TestSecretsAreFilled: a Secret gets what its type says, keeps the token that it has
// unless its key is being replaced, and goes with its ServiceAccount or for one that was another of that name.
func TestSecretsAreFilled(t *testing.T) {
	client := fake.NewClientset(account("u1"), secret("token", ""), secret("foreign", "u0"))
	c, err := New(client, &numbered{outdated: "an old key's"}, []byte("the CA"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	secrets, accounts := client.CoreV1().Secrets("shop"), client.CoreV1().ServiceAccounts("shop")
	eventually := func(what string, condition func() bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return condition(), nil })
		if err != nil {
			t.Fatal(what)
		}
	}
	is := func(name, token string) func() bool {
		return func() bool {
			s, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && s.Annotations[corev1.ServiceAccountUIDKey] == "u1" && string(s.Data["token"]) == token &&
				string(s.Data["ca.crt"]) == "the CA" && string(s.Data["namespace"]) == "shop"
		}
	}
	isGone := func(name string) func() bool {
		return func() bool {
			_, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}
	}
	eventually("the Secret isn't filled", is("token", "u1 token 1"))
	eventually("the Secret of an account that was another one is there", isGone("foreign"))

	s, err := secrets.Get(t.Context(), "token", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Data["ca.crt"] = []byte("another")
	if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the CA isn't as it was, or the token another one", is("token", "u1 token 1"))

	if s, err = secrets.Get(t.Context(), "token", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Data["token"] = []byte("an old key's")
	if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("a token whose key is being replaced is still there", is("token", "u1 token 2"))

	if err := secrets.Delete(t.Context(), "token", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the ServiceAccount still lists the Secret", func() bool {
		a, err := accounts.Get(t.Context(), "robot", metav1.GetOptions{})
		return err == nil && len(a.Secrets) == 1 && a.Secrets[0].Name == "other"
	})
	if _, err := secrets.Create(t.Context(), secret("next", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the next Secret isn't filled", is("next", "u1 next 3"))
	if err := accounts.Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the Secret outlives its ServiceAccount", isGone("next"))
}
