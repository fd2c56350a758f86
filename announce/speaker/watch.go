package speaker

import (
	"context"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/kube"
)

const (
	resourcePeers = "bgppeers"
	partPasswords = "passwords"
)

// watch follows what says what to announce.
func (n *Speaker) watch(ctx context.Context, group *errgroup.Group) {
	follow(ctx, group, n, "ipaddresspools", n.objects.Pools)
	follow(ctx, group, n, "l2advertisements", n.objects.L2Advertisements)
	follow(ctx, group, n, "bgpadvertisements", n.objects.BGPAdvertisements)
	follow(ctx, group, n, resourcePeers, n.objects.BGPPeers)
	follow(ctx, group, n, "bfdprofiles", n.objects.BFDProfiles)
	follow(ctx, group, n, "communities", n.objects.Communities)
	n.mu.Lock()
	n.missing[partPasswords] = true
	n.mu.Unlock()
	group.Go(func() error { n.keepPasswords(ctx); return nil })
	group.Go(func() error { n.listServices(ctx); return nil })
	if n.options.Speakers {
		n.watchSpeakers(ctx, group)
	}
}

// listServices takes in all Services when cluster IPs begin to be announced: what
// others than load balancers say isn't kept before.
func (n *Speaker) listServices(ctx context.Context) {
	const again = 5 * time.Second
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.servicesWanted:
		}
		list, err := n.client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			if ctx.Err() == nil {
				n.log.Warn("the Services of which cluster IPs are announced could not be listed", "error", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(again):
				signal(n.servicesWanted)
			}
			continue
		}
		for i := range list.Items {
			n.SetService(&list.Items[i])
		}
		n.complete(partServices)
	}
}

// object is a kind of MetalLB's.
type object[T any] interface {
	kube.Object
	DeepCopy() T
}

func follow[T object[T]](ctx context.Context, group *errgroup.Group, n *Speaker, resource string, objects map[string]T) {
	client := n.metallb.V1beta1
	if resource == resourcePeers {
		client = n.metallb.V1beta2
	}
	n.mu.Lock()
	n.missing[resource] = true
	n.mu.Unlock()
	sink := kube.Sink[T]{
		Set: func(o T) {
			n.mu.Lock()
			defer n.mu.Unlock()
			old, had := objects[o.GetName()]
			objects[o.GetName()] = o.DeepCopy()
			if !had || old.GetGeneration() != o.GetGeneration() || !labels.Equals(old.GetLabels(), o.GetLabels()) ||
				old.GetAnnotations()[announce.AnnotationAnnounce] != o.GetAnnotations()[announce.AnnotationAnnounce] {
				n.reread(resource)
			}
		},
		Delete: func(key types.NamespacedName) {
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(objects, key.Name)
			n.reread(resource)
		},
		Synced: func() { n.complete(resource) },
	}
	group.Go(func() error {
		kube.Watch(ctx, kube.Source{Client: client, Resource: resource, Namespace: n.namespace}, sink)
		return nil
	})
}

func (n *Speaker) reread(resource string) {
	if resource == resourcePeers {
		signal(n.peersChanged)
	}
	signal(n.wake)
}

func (n *Speaker) complete(resource string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.missing, resource)
	n.reread(resource)
}

// watchSpeakers follows MetalLB's speakers on this node: two announcers would
// take the addresses from each other.
func (n *Speaker) watchSpeakers(ctx context.Context, group *errgroup.Group) {
	const resource = "pods"
	n.mu.Lock()
	n.missing[resource] = true
	n.mu.Unlock()
	sink := kube.Sink[*corev1.Pod]{
		Set: func(p *corev1.Pod) {
			n.setSpeaker(types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded)
		},
		Delete: func(key types.NamespacedName) { n.setSpeaker(key, false) },
		Synced: func() { n.complete(resource) },
	}
	group.Go(func() error {
		kube.Watch(ctx, kube.Source{
			Client: n.client.CoreV1().RESTClient(), Resource: resource, Namespace: n.namespace,
			Labels: labels.SelectorFromSet(labels.Set{"component": "speaker"}),
			Fields: fields.OneTermEqualSelector("spec.nodeName", n.node),
		}, sink)
		return nil
	})
}

func (n *Speaker) setSpeaker(key types.NamespacedName, there bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case there && !n.rival[key]:
		n.log.Warn("a MetalLB speaker runs on this node; announcing nothing until it is gone", "pod", key.String())
		n.rival[key] = true
	case !there && n.rival[key]:
		delete(n.rival, key)
	}
	n.reconsider()
}

// passwordsAgain is how often Secrets are read anew: a node may not watch them.
const passwordsAgain = 15 * time.Second

// keepPasswords reads the Secrets that BGPPeers name, and whether there is what
// only FRR could use, until ctx is done.
func (n *Speaker) keepPasswords(ctx context.Context) {
	for {
		n.readPasswords(ctx)
		n.readExtras(ctx)
		n.mu.Lock()
		var again <-chan time.Time
		if len(n.objects.BGPPeers) > 0 {
			again = time.After(passwordsAgain)
		}
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-n.peersChanged:
		case <-again:
		}
	}
}

// secretsOfPeers are the names of Secrets with passwords.
func (n *Speaker) secretsOfPeers() map[string]bool {
	names := map[string]bool{}
	for _, p := range n.objects.BGPPeers {
		if name := p.Spec.PasswordSecret.Name; name != "" {
			names[name] = true
		}
	}
	return names
}

func (n *Speaker) readPasswords(ctx context.Context) {
	n.mu.Lock()
	names := n.secretsOfPeers()
	peersKnown := !n.missing[resourcePeers]
	passwords := map[string]string{}
	for name := range names {
		if before, ok := n.objects.Passwords[name]; ok {
			passwords[name] = before // if it can't be read now
		}
	}
	n.mu.Unlock()
	for name := range names {
		secret, err := n.client.CoreV1().Secrets(n.namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && secret.Type == corev1.SecretTypeBasicAuth && len(secret.Data[corev1.BasicAuthPasswordKey]) > 0:
			passwords[name] = string(secret.Data[corev1.BasicAuthPasswordKey])
		case err == nil || apierrors.IsNotFound(err):
			delete(passwords, name)
		case ctx.Err() == nil:
			n.log.Warn("the password of a BGP session can't be read", "secret", n.namespace+"/"+name, "error", err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.missing[partPasswords] && peersKnown || !maps.Equal(passwords, n.objects.Passwords) {
		n.objects.Passwords = passwords
		delete(n.missing, partPasswords)
		signal(n.wake)
	}
}

// extras is the ConfigMap with text that MetalLB hands on to FRR.
const extras = "bgpextras"

// readExtras looks for raw FRR configuration, which has no effect here.
func (n *Speaker) readExtras(ctx context.Context) {
	n.mu.Lock()
	asked := len(n.objects.BGPPeers) > 0
	n.mu.Unlock()
	there := false
	if asked {
		_, err := n.client.CoreV1().ConfigMaps(n.namespace).Get(ctx, extras, metav1.GetOptions{})
		there = err == nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.objects.RawFRR != there {
		n.objects.RawFRR = there
		signal(n.wake)
	}
}
