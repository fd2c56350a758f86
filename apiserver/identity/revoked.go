package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/warning"

	"github.com/fairway-net/fairway/apiserver/pki"
)

const (
	// revokedMachines names the ConfigMap in kube-system that lists, by the
	// name of a Node, the time before which its machine's certificates were
	// issued that no longer hold.
	revokedMachines = "fairway-revoked-machines"
	// NodePrefix begins the names of machines as users.
	NodePrefix = "system:node:"
)

// Revocable lets client certificates of machines pass that weren't revoked.
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
	node, isNode := strings.CutPrefix(response.User.GetName(), NodePrefix)
	if !isNode {
		return response, ok, nil
	}
	if err := r.Check(req.Context(), node, pki.IssuedAt(req.TLS.PeerCertificates[0])); err != nil {
		warning.AddWarning(req.Context(), "", err.Error())
		return nil, false, err
	}
	return response, true, nil
}

// Check reports that a machine's certificate was revoked after it was issued.
func (r *Revocable) Check(ctx context.Context, node string, issued time.Time) error {
	obj, err := r.Objects.Cached(ctx, "configmaps", metav1.NamespaceSystem, revokedMachines)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find revoked certificates: %w", err)
	}
	list, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return errors.New("find revoked certificates: no ConfigMap")
	}
	at, listed := list.Data[node]
	if !listed {
		return nil
	}
	revoked, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || !issued.After(revoked) { // what can't be read revokes
		return fmt.Errorf("the certificate of machine %s was revoked at %s: let it join again with a new token", node, revoked.Format(time.RFC3339))
	}
	return nil
}
