package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/announce/l2"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/model"
)

// Announce says how load balancer addresses are announced.
type Announce struct {
	// Namespace of the objects that say what to announce; v1beta1.DefaultNamespace if "".
	Namespace string
	// Speakers looks for a MetalLB speaker on this node, and waits while there is one.
	Speakers bool
}

// The Secret with the key that nodes sign their adverts with; the address
// controller makes it.
const (
	announceSecret = "fairway-announce"
	announceKey    = "key"
)

// announcing announces the addresses that the data plane has in force. It is told
// of tables before and after they are applied. nil announces nothing.
type announcing struct {
	node, namespace string
	options         Announce
	client          kubernetes.Interface
	metallb         *kube.MetalLB
	log             *slog.Logger
	wake            chan struct{} // there may be a new plan
	changed         chan struct{} // what is announced may have changed
	peersChanged    chan struct{} // passwords may be needed
	routers         speaker
	ways            *bfd.Monitor // to routers

	mu       sync.Mutex
	events   *events         // of the agent in charge
	missing  map[string]bool // what is not complete yet
	objects  announce.Objects
	services map[string]announce.Service // those with addresses that others may reach
	self     announce.Node
	rival    map[types.NamespacedName]bool // MetalLB's speakers on this node
	inForce  announce.Tracker
	next     announce.Tracker
	leftOut  map[netip.Addr]string // what the data plane has not in force, and why
	plan     announce.Plan
	faults   []string
	notes    []string
	told     map[string]string        // problems of Services that Events were written of
	since    map[netip.Addr]time.Time // that routers have been told of an address
	layer2   *l2.Announcer            // nil before the key is known
}

// speaker tells routers what this node announces; see announce/bgp.
type speaker interface {
	// Peers says which routers to hold sessions with.
	Peers([]announce.Peer)
	// Routes says what each is told, and reports whether anything is withdrawn.
	Routes(map[string]map[netip.Prefix]announce.Route) (withdrawn bool)
	Status() []bgp.Status
}

// partTable is missing until the data plane has a table in force: routers must not
// hear of nothing, when an agent begins, what they have heard of its predecessor.
const partTable = "table"

func newAnnouncing(a *Agent) (*announcing, error) {
	if a.config.Announce == nil {
		return nil, nil
	}
	metallb, err := kube.NewMetalLB(a.config.API)
	if err != nil {
		return nil, err
	}
	n := &announcing{
		node: a.config.NodeName, namespace: cmp.Or(a.config.Announce.Namespace, v1beta1.DefaultNamespace), options: *a.config.Announce,
		client: a.client, metallb: metallb, events: a.events, log: a.config.Log.With("part", "announce"),
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), peersChanged: make(chan struct{}, 1),
		missing: map[string]bool{partTable: true}, services: map[string]announce.Service{}, rival: map[types.NamespacedName]bool{},
		told: map[string]string{}, since: map[netip.Addr]time.Time{},
		objects: announce.Objects{
			Pools: map[string]*v1beta1.IPAddressPool{}, L2Advertisements: map[string]*v1beta1.L2Advertisement{},
			BGPAdvertisements: map[string]*v1beta1.BGPAdvertisement{}, BGPPeers: map[string]*v1beta2.BGPPeer{},
			BFDProfiles: map[string]*v1beta1.BFDProfile{}, Communities: map[string]*v1beta1.Community{}, Passwords: map[string]string{},
		},
	}
	routers := bgp.New(func() { signal(n.changed) }, n.log)
	n.routers = routers
	n.ways = bfd.New(func() { signal(n.changed) }, routers.Reset, n.log)
	return n, nil
}

// intend is told of a table before it is applied: what it no longer has is
// withdrawn first.
func (n *announcing) intend(table *model.Table) {
	if n == nil || table == nil {
		return
	}
	n.mu.Lock()
	changed := n.next.Update(table)
	n.mu.Unlock()
	if changed && n.decide() {
		time.Sleep(withdrawPause)
	}
}

// withdrawPause is how long routers have for what is withdrawn, before the data
// plane forgets it.
const withdrawPause = 100 * time.Millisecond

// applied is told of a table that is in force now, but for what is left out.
func (n *announcing) applied(table *model.Table, leftOut []kernel.LeftOut) {
	if n == nil {
		return
	}
	left := map[netip.Addr]string{}
	for _, l := range leftOut {
		if l.Frontend.Addr.IsValid() {
			left[l.Frontend.Addr] = l.Error()
		}
	}
	n.mu.Lock()
	changed := n.inForce.Update(table)
	changed = !maps.Equal(left, n.leftOut) || changed
	n.leftOut = left
	changed = n.missing[partTable] || changed
	delete(n.missing, partTable)
	n.mu.Unlock()
	if changed {
		n.decide()
	}
}

func (n *announcing) setService(s *corev1.Service) {
	if n == nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Spec.ExternalIPs) == 0 {
		return
	}
	name := s.Namespace + "/" + s.Name
	next := announce.Service{Labels: s.Labels, Annotations: map[string]string{}}
	for _, annotation := range []string{announce.AnnotationPrepend, announce.AnnotationCommunities} {
		if text, ok := s.Annotations[annotation]; ok {
			next.Annotations[annotation] = text
		}
	}
	n.mu.Lock()
	before := n.services[name]
	n.services[name] = next
	n.mu.Unlock()
	if !labels.Equals(before.Labels, next.Labels) || !maps.Equal(before.Annotations, next.Annotations) {
		signal(n.wake)
	}
}

func (n *announcing) deleteService(key types.NamespacedName) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.services, key.String())
	delete(n.told, key.String())
}

// setNode takes in what the Node says of announcing.
func (n *announcing) setNode(node *corev1.Node) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := announce.Node{Labels: node.Labels, Unfit: unfit(node)}
	if next.Unfit != n.self.Unfit || !labels.Equals(next.Labels, n.self.Labels) {
		n.self = next
		signal(n.wake)
	}
}

// unfit says why a node must not announce; "" if it may.
func unfit(node *corev1.Node) string {
	if _, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return "the node has the label " + corev1.LabelNodeExcludeBalancers
	}
	if !eligible(node) {
		return "the node is about to be deleted"
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue {
			return "the node has the condition NetworkUnavailable"
		}
	}
	return ""
}

// run announces until ctx is done, and hands over then. Where the API has none
// of MetalLB's kinds it waits.
func (n *announcing) run(ctx context.Context) error {
	if !n.metallb.Await(ctx) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	n.watch(ctx, group)
	group.Go(func() error { n.keepReported(ctx); return nil })
	group.Go(func() error {
		for {
			n.decide()
			select {
			case <-ctx.Done():
				return nil
			case <-n.wake:
			}
		}
	})
	group.Go(func() error { return n.runLayer2(ctx) })
	return group.Wait()
}

// runLayer2 announces on the links once the key is known.
func (n *announcing) runLayer2(ctx context.Context) error {
	key, ok := n.awaitKey(ctx)
	if !ok {
		return nil
	}
	layer2 := l2.New(n.node, key, func() { signal(n.changed) }, n.log)
	n.mu.Lock()
	n.layer2 = layer2
	n.mu.Unlock()
	signal(n.wake)
	return layer2.Run(ctx)
}

// decide makes the plan anew and has it carried out. It reports whether anything
// was withdrawn from routers.
func (n *announcing) decide() (withdrawn bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.missing) > 0 {
		return false
	}
	config, faults := announce.Read(n.objects)
	self := n.self
	if len(n.rival) > 0 {
		self.Unfit = "a MetalLB speaker runs on this node and announces"
	}
	served := announce.Both(n.inForce.Served(), n.next.Served())
	left := map[netip.Addr]string{}
	for address, why := range n.leftOut {
		if _, ok := served[address]; ok {
			left[address] = why
			delete(served, address)
		}
	}
	plan := announce.Decide(config, self, served, func(service string) announce.Service { return n.services[service] })
	maps.Copy(plan.WhyNot, left)
	if n.layer2 != nil {
		wanted := make(map[netip.Addr]l2.Placement, len(plan.L2))
		for address, a := range plan.L2 {
			wanted[address] = l2.Placement{Interfaces: a.Interfaces, Weight: a.Weight}
		}
		n.layer2.Set(wanted)
	}
	withdrawn = n.routers.Routes(plan.Routes)
	if len(n.rival) > 0 {
		plan.Peers = nil // one of the two would be refused by the router
	}
	n.routers.Peers(plan.Peers)
	n.tell(faults, plan.Problems)
	n.plan, n.faults, n.notes = plan, faults, config.Notes
	signal(n.changed)
	return withdrawn
}

// reasonFailed is the reason of Events about what can't be announced as asked, as
// MetalLB has it.
const reasonFailed = "announceFailed"

// tell logs what is new of what can't be announced as asked, and has Events written.
func (n *announcing) tell(faults []string, services map[string][]string) {
	for _, f := range faults {
		if !slices.Contains(n.faults, f) {
			n.log.Warn("not announced as configured", "because", f)
			n.events.reportNode(reasonFailed, f)
		}
	}
	for name, problems := range services {
		text := strings.Join(problems, "; ")
		if n.told[name] == text {
			continue
		}
		n.told[name] = text
		namespace, service, _ := strings.Cut(name, "/")
		n.events.report(notice{service: types.NamespacedName{Namespace: namespace, Name: service}, reason: reasonFailed, message: text})
	}
}

// awaitKey returns the key of the adverts once it is there.
func (n *announcing) awaitKey(ctx context.Context) ([]byte, bool) {
	for first := true; ; first = false {
		secret, err := n.client.CoreV1().Secrets(n.namespace).Get(ctx, announceSecret, metav1.GetOptions{})
		if err == nil && len(secret.Data[announceKey]) == 0 {
			err = fmt.Errorf("it has no data %q", announceKey)
		}
		if err == nil {
			return secret.Data[announceKey], true
		}
		if first {
			n.log.Info("waiting for the key that nodes sign their adverts with", "secret", n.namespace+"/"+announceSecret, "because", err)
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(time.Second):
		}
	}
}
