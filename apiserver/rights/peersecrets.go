package rights

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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
	// referredFor is how long a Secret that a BGPPeer referred to stays readable
	// without another look. Nodes read each password every 15 s.
	referredFor = 10 * time.Second
)

// PeerSecrets tells which Secrets hold passwords of BGP sessions, as
// Kubernetes' node authorizer tells which Secrets a node's Pods mount. The zero
// value with List is ready to use.
type PeerSecrets struct {
	// List returns the names of the Secrets that BGPPeers of a namespace refer
	// to now.
	List func(ctx context.Context, namespace string) ([]string, error)
	// HoldsToken reports whether a Secret holds a ServiceAccount's token, which no
	// machine may read, whoever refers to it. nil is never.
	HoldsToken func(ctx context.Context, namespace, name string) (bool, error)

	// looking is held by who lists: one at a time, however many nodes ask.
	looking sync.Mutex
	mu      sync.RWMutex
	names   sets.Set[string]
	read    time.Time
}

// refer reports whether a BGPPeer refers to the Secret. Names that were
// referred to a moment ago are not looked up again, others always are: an agent
// asks for a password at once when it hears of a BGPPeer.
func (p *PeerSecrets) refer(ctx context.Context, name string) (bool, error) {
	if p.known(name) {
		return true, nil
	}
	p.looking.Lock()
	defer p.looking.Unlock()
	if p.known(name) {
		return true, nil
	}
	began := time.Now()
	list, err := p.List(ctx, announceNamespace)
	if err != nil {
		return false, fmt.Errorf("find the BGPPeers that refer to Secret %s/%s: %w", announceNamespace, name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names, p.read = sets.New(list...), began
	return p.names.Has(name), nil
}

func (p *PeerSecrets) known(name string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return time.Since(p.read) < referredFor && p.names.Has(name)
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
