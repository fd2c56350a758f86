package rights

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	// announceNamespace is where MetalLB's objects and what they refer to are.
	announceNamespace = "metallb-system"
	// announceSecret is the key that nodes sign with when they agree on who
	// announces what.
	announceSecret = "fairway-announce"
	// announceExtras is raw FRR configuration, of which an agent says that it has
	// no effect.
	announceExtras = "bgpextras"
)

// PeerSecrets tells which Secrets hold passwords of BGP sessions, as
// Kubernetes' node authorizer tells which Secrets a node's Pods mount. The zero
// value with List is ready to use.
type PeerSecrets struct {
	// List returns the names of the Secrets that BGPPeers of a namespace refer
	// to now.
	List func(ctx context.Context, namespace string) ([]string, error)
	// HoldsToken reports whether a Secret holds a token of somebody's, which no
	// machine may read, whoever refers to it. nil is never.
	HoldsToken func(ctx context.Context, namespace, name string) (bool, error)

	referred referred[string]
}

// refer reports whether a BGPPeer refers to the Secret.
func (p *PeerSecrets) refer(ctx context.Context, name string) (bool, error) {
	has, err := p.referred.has(ctx, name, func(ctx context.Context) ([]string, error) { return p.List(ctx, announceNamespace) })
	if err != nil {
		return false, fmt.Errorf("find the BGPPeers that refer to Secret %s/%s: %w", announceNamespace, name, err)
	}
	return has, nil
}

// holdsToken reports whether a request is for a Secret that holds a token.
func (p *PeerSecrets) holdsToken(ctx context.Context, a authorizer.Attributes) (bool, error) {
	if p.HoldsToken == nil || !readsPassword(a) {
		return false, nil
	}
	return p.HoldsToken(ctx, a.GetNamespace(), a.GetName())
}

// readsPassword reports whether a node asks for a Secret of the namespace that
// only BGPPeers make readable.
func readsPassword(a authorizer.Attributes) bool {
	return a.IsResourceRequest() && a.GetVerb() == "get" && a.GetAPIGroup() == corev1.GroupName && a.GetResource() == "secrets" && a.GetSubresource() == "" &&
		a.GetNamespace() == announceNamespace && a.GetName() != ""
}

// ofAnnouncing are the Secret and the ConfigMap that every agent which announces
// reads.
func ofAnnouncing(_ string, a authorizer.Attributes) bool {
	named := map[string]string{"secrets": announceSecret, "configmaps": announceExtras}
	return a.GetNamespace() == announceNamespace && a.GetName() == named[a.GetResource()]
}
