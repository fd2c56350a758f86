package join

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token lets machines join for a time. Its written form is
// ID.SECRET@sha256:HASH; ID and SECRET alone are a bootstrap token of
// Kubernetes.
type Token struct {
	ID, Secret string
	// CAHash is "sha256:" and the SHA-256, in hexadecimal, of the public key
	// of the servers' certificate authority.
	CAHash string
	// Server says that the token is for a server of the cluster, which is handed
	// the keys of its authorities, and not for a machine.
	Server bool
}

// serverPrefix begins the tokens of servers.
const serverPrefix = "server-"

// SecretPrefix begins the names of the Secrets that hold tokens in kube-system.
const SecretPrefix = "bootstrap-token-"

var tokenForm = regexp.MustCompile(`^(server-)?([a-z0-9]{6})\.([a-z0-9]{16})@(sha256:[0-9a-f]{64})$`)

// NewToken makes a token that nobody can guess.
func NewToken(caHash string) Token {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	random := func(n int) string {
		out := make([]byte, 0, n)
		for len(out) < n {
			var b [1]byte
			rand.Read(b[:]) // never fails
			// Bytes beyond the last whole multiple would favour some letters.
			if int(b[0]) < 256/len(letters)*len(letters) {
				out = append(out, letters[int(b[0])%len(letters)])
			}
		}
		return string(out)
	}
	return Token{ID: random(6), Secret: random(16), CAHash: caHash}
}

// ParseToken reads the written form of a machine's token.
func ParseToken(s string) (Token, error) {
	t, ok := parse(s)
	switch {
	case !ok:
		return t, errors.New("--token: must have the form that `fairway token create` prints: ID.SECRET@sha256:HASH")
	case t.Server:
		return t, errors.New("--token: this one is for servers (`fairway server --join`); `fairway token create` makes one for machines")
	}
	return t, nil
}

// ParseServerToken reads the written form of a server's token.
func ParseServerToken(s string) (Token, error) {
	t, ok := parse(s)
	switch {
	case !ok:
		return t, errors.New("--token: must have the form that `fairway token create --server` prints: server-ID.SECRET@sha256:HASH")
	case !t.Server:
		return t, errors.New("--token: this one is for machines (`fairway join`); `fairway token create --server` makes one for servers")
	}
	return t, nil
}

func parse(s string) (Token, bool) {
	m := tokenForm.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return Token{}, false
	}
	return Token{ID: m[2], Secret: m[3], CAHash: m[4], Server: m[1] != ""}, true
}

func (t Token) String() string { return t.Bearer() + "@" + t.CAHash }

// Bearer is what is shown to the server.
func (t Token) Bearer() string {
	if t.Server {
		return serverPrefix + t.ID + "." + t.Secret
	}
	return t.ID + "." + t.Secret
}

// Object returns the Secret that makes the server accept the token until it
// expires. The zero time is never.
func (t Token) Object(description string, expires time.Time) *corev1.Secret {
	data := map[string]string{
		"token-id": t.ID, "token-secret": t.Secret,
		"usage-bootstrap-authentication": "true",
	}
	if description != "" {
		data["description"] = description
	}
	if !expires.IsZero() {
		data["expiration"] = expires.UTC().Format(time.RFC3339)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretPrefix + t.ID},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: data,
	}
}

// HashPEM names the certificate authority in PEM data, as Token.CAHash does.
func HashPEM(data []byte) (string, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return "", errors.New("read certificate authority: not PEM encoded")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("parse certificate authority: %w", err)
	}
	return hash(cert), nil
}

func hash(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}
