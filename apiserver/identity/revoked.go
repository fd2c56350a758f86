package identity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"

	"github.com/fairway-net/fairway/internal/machineuser"
	"github.com/fairway-net/fairway/internal/revocation"
)

// NodePrefix begins the names of machines as users.
const NodePrefix = "system:node:"

// Revocable lets client certificates of machines pass that weren't revoked: those of agents,
// and of processes of Gateways.
type Revocable struct {
	Certificates authenticator.Request
	Objects      Objects
}

// AuthenticateRequest implements authenticator.Request.
func (r *Revocable) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := r.Certificates.AuthenticateRequest(req)
	if err != nil || !ok {
		return response, ok, err
	}
	of, isMachine := machineuser.Parse(response.User.GetName())
	if !isMachine {
		return response, ok, nil
	}
	issued := revocation.IssuedAt(req.TLS.PeerCertificates[0])
	if err := r.Check(req.Context(), of.Node, issued); err != nil {
		warning.AddWarning(req.Context(), "", err.Error())
		return nil, false, err
	}
	extra := maps.Clone(response.User.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[revocation.IssuedKey] = []string{issued.UTC().Format(time.RFC3339Nano)}
	known := *response
	known.User = &user.DefaultInfo{
		Name: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(), Extra: extra,
	}
	return &known, true, nil
}

// Check reports that a machine's certificate was revoked after it was issued.
func (r *Revocable) Check(ctx context.Context, node string, issued time.Time) error {
	for _, name := range []string{revocation.ListOf(node), revocation.Undivided} {
		obj, err := r.Objects.Cached(ctx, "configmaps", metav1.NamespaceSystem, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find revoked certificates: %w", err)
		}
		list, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return errors.New("find revoked certificates: no ConfigMap")
		}
		text, listed := list.Data[node]
		if entry := revocation.Parse(text); listed && entry.Revokes(issued) {
			return fmt.Errorf("the certificate of machine %s was revoked%s: let it join again with a new token", node, circumstance(entry))
		}
	}
	return nil
}

// circumstance says when certificates were revoked, and why, as far as that is known.
func circumstance(e revocation.Entry) string {
	switch {
	case e.All:
		return ""
	case e.Gone:
		return " at " + e.Until.Format(time.RFC3339) + ", since it had no Node (deleted, or not made within ten minutes of joining)"
	}
	return " at " + e.Until.Format(time.RFC3339)
}

// Version changes whenever a certificate is revoked.
func (r *Revocable) Version(ctx context.Context) string {
	var versions strings.Builder
	for _, name := range revocation.Names() {
		obj, err := r.Objects.Cached(ctx, "configmaps", metav1.NamespaceSystem, name)
		if list, ok := obj.(*corev1.ConfigMap); ok && err == nil {
			versions.WriteString(list.ResourceVersion)
		}
		versions.WriteByte(' ')
	}
	return versions.String()
}
