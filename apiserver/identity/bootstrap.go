package identity

import (
	"context"
	"crypto/subtle"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
)

const (
	// bootstrapUser begins the user name of whoever shows a join token.
	bootstrapUser  = "system:bootstrap:"
	bootstrapGroup = "system:bootstrappers"
	secretPrefix   = "bootstrap-token-"
)

var (
	joinToken       = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapGroups = sync.OnceValue(func() *regexp.Regexp { // large: not for every command
		return regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
	})
)

// JoinTokens recognises the tokens with which machines join: Secrets of type
// bootstrap.kubernetes.io/token in kube-system.
type JoinTokens struct {
	objects Objects
	now     func() time.Time
}

// NewJoinTokens returns an authenticator that finds the Secrets among objects.
func NewJoinTokens(objects Objects) *JoinTokens { return &JoinTokens{objects: objects, now: time.Now} }

// AuthenticateToken implements authenticator.Token. Tokens of another form are
// left to others. The reason of a failure goes into the answer as a warning:
// the library says no more than "Unauthorized". That a token has expired only
// the holder of the right secret learns.
func (j *JoinTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	response, ok, err := j.authenticate(ctx, token)
	if err != nil {
		warning.AddWarning(ctx, "", err.Error())
	}
	return response, ok, err
}

func (j *JoinTokens) authenticate(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := joinToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id := parts[1]
	unknown := fmt.Errorf("join token %s is not known: it is wrong, or was deleted", id)
	obj, err := j.objects.Get(ctx, "secrets", metav1.NamespaceSystem, secretPrefix+id)
	if apierrors.IsNotFound(err) {
		return nil, false, unknown
	}
	if err != nil {
		return nil, false, fmt.Errorf("find join token %s: %w", id, err)
	}
	secret := obj.(*corev1.Secret)
	right := secret.Type == corev1.SecretTypeBootstrapToken && secret.DeletionTimestamp == nil && string(secret.Data["token-id"]) == id &&
		subtle.ConstantTimeCompare(secret.Data["token-secret"], []byte(parts[2])) == 1
	if !right || string(secret.Data["usage-bootstrap-authentication"]) != "true" {
		return nil, false, unknown
	}
	if at := string(secret.Data["expiration"]); at != "" {
		expires, err := time.Parse(time.RFC3339, at)
		if err != nil || !j.now().Before(expires) {
			return nil, false, fmt.Errorf("join token %s expired at %s", id, at)
		}
	}
	groups := []string{bootstrapGroup}
	for g := range strings.SplitSeq(string(secret.Data["auth-extra-groups"]), ",") {
		if bootstrapGroups().MatchString(g) {
			groups = append(groups, g)
		}
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: bootstrapUser + id, Groups: groups}}, true, nil
}
