package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/fairway-net/fairway/apiserver/rights"
)

var serverTokenForm = regexp.MustCompile(`^server-([a-z0-9]{6})\.([a-z0-9]{16})$`)

// ServerTokenUser begins the user name of whoever shows a server token; its ID follows.
const ServerTokenUser = "system:server-token:"

// ServerToken is what is kept of the token by which a server joins. It lets
// its holder have the keys of the cluster's authorities: so it is no Secret,
// which administrators of a namespace may read and make, and what is kept
// doesn't tell it.
type ServerToken struct {
	ID          string    `json:"id"`
	Hash        string    `json:"hash"`
	Description string    `json:"description,omitempty"`
	Expires     time.Time `json:"expires,omitzero"`
	// Holder is the one server that may join, once one has begun to: NAME at URL.
	Holder string `json:"holder,omitempty"`
}

// HashServerToken is how a token is kept.
func HashServerToken(bearer string) string {
	sum := sha256.Sum256([]byte(bearer))
	return hex.EncodeToString(sum[:])
}

// ServerTokens recognises the tokens by which servers join.
type ServerTokens struct {
	// Find returns a token by its ID; nil if there is none.
	Find func(ctx context.Context, id string) (*ServerToken, error)
	now  func() time.Time
}

// NewServerTokens returns an authenticator of the tokens that find finds.
func NewServerTokens(find func(context.Context, string) (*ServerToken, error)) *ServerTokens {
	return &ServerTokens{Find: find, now: time.Now}
}

// AuthenticateToken implements authenticator.Token, as JoinTokens does.
func (s *ServerTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := serverTokenForm.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id := parts[1]
	if err := s.check(ctx, id, token); err != nil {
		warning.AddWarning(ctx, "", err.Error())
		return nil, false, err
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: ServerTokenUser + id, Groups: []string{rights.JoiningServersGroup}}}, true, nil
}

func (s *ServerTokens) check(ctx context.Context, id, token string) error {
	kept, err := s.Find(ctx, id)
	if err != nil {
		return fmt.Errorf("find server token %s: %w", id, err)
	}
	if kept == nil || subtle.ConstantTimeCompare([]byte(kept.Hash), []byte(HashServerToken(token))) != 1 {
		return fmt.Errorf("server token %s is not known: it is wrong, or was deleted", id)
	}
	if !kept.Expires.IsZero() && !s.now().Before(kept.Expires) {
		return fmt.Errorf("server token %s expired at %s", id, kept.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}
