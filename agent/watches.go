package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/nodeaddrs"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/lastknown"
	"github.com/fairway-net/fairway/kube/ownnode"
	"github.com/fairway-net/fairway/model"
)

// table gives the loop the latest table and tells the owners of Services what
// new problems it has.
func (a *Agent) table() *model.Table {
	table, problems, mark := a.state.table()
	if table != nil {
		a.releaseListMemory()
	}
	a.events.problems(problems)
	a.names.Tabled(table, mark)
	return a.balance.Intend(table)
}

// incompleteTimeout is how long the first table may take to be complete before
// the log says what it waits for.
const incompleteTimeout = 20 * time.Second

// reportIncomplete says once what the first table waits for, if it waits for long.
func (a *Agent) reportIncomplete(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(incompleteTimeout):
	}
	if missing := a.state.incomplete(); len(missing) > 0 {
		a.config.Log.Warn("nothing is programmed yet: the agent waits for complete lists", "missing", missing)
	}
}

func (a *Agent) watchServices(ctx context.Context) {
	kube.Watch(ctx, kube.Source{Client: a.client.CoreV1().RESTClient(), Resource: "services"}, lastknown.Keep(ctx, a.known, "services", a.alsoServices(kube.Sink[*corev1.Service]{
		Set: func(s *corev1.Service) {
			a.balance.SetService(s)
			a.state.setService(s)
		},
		Delete: func(key types.NamespacedName) {
			a.state.deleteService(key)
			a.balance.DeleteService(key)
		},
		Synced: func() { a.state.complete(partServices) },
	}), func() *corev1.Service { return &corev1.Service{} }, a.config.Log))
}

// watchSlices leaves out the slices of headless Services, as kube-proxy does:
// nobody forwards them. Their names are wanted where DNS is served. What nodes
// report of health checks is for the controller alone.
func (a *Agent) watchSlices(ctx context.Context) {
	source := kube.Source{
		Client: a.client.DiscoveryV1().RESTClient(), Resource: "endpointslices", Labels: without(check.ReportOf),
	}
	if a.config.DNS == nil {
		source.Labels = without(corev1.IsHeadlessService, check.ReportOf)
	}
	kube.Watch(ctx, source, lastknown.Keep(ctx, a.known, "endpointslices", a.alsoSlices(kube.Sink[*discoveryv1.EndpointSlice]{
		Set:    a.state.setSlice,
		Delete: a.state.deleteSlice,
		Synced: func() { a.state.complete(partSlices) },
	}), func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} }, a.config.Log))
}

// without selects objects that have none of these labels.
func without(names ...string) labels.Selector {
	selector := labels.NewSelector()
	for _, label := range names {
		r, err := labels.NewRequirement(label, selection.DoesNotExist, nil)
		if err != nil {
			panic("label " + label + " is invalid: " + err.Error())
		}
		selector = selector.Add(*r)
	}
	return selector
}

// watchNode follows the Node of this machine. Without one the agent works too.
func (a *Agent) watchNode(ctx context.Context) {
	source := kube.Source{
		Client: a.client.CoreV1().RESTClient(), Resource: "nodes",
		Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, a.config.NodeName),
	}
	var found bool
	kube.Watch(ctx, source, lastknown.Keep(ctx, a.known, "nodes", kube.Sink[*corev1.Node]{
		Set: func(n *corev1.Node) {
			found = true
			a.health.setEligible(eligible(n))
			a.balance.SetNode(n, eligible(n)) // before the first table can be complete
			a.state.setNode(n)
			a.publish.SetNode(n)
		},
		Delete: func(types.NamespacedName) {
			a.config.Log.Warn("the Node object of this machine was deleted; forwarding goes on, and no address is announced any more", "node", a.config.NodeName)
			a.health.setEligible(false)
			a.balance.DeleteNode()
			signal(a.unregistered)
		},
		Synced: func() {
			if !found {
				a.state.setNode(nil)
			}
			if !found && !a.config.Register { // which makes it in a moment
				a.config.Log.Warn("there is no Node object of this machine yet; continuing without it", "node", a.config.NodeName)
			}
		},
	}, func() *corev1.Node { return &corev1.Node{} }, a.config.Log))
}

// toBeDeleted is the taint that the cluster autoscaler puts on a node that is
// about to go.
const toBeDeleted = "ToBeDeletedByClusterAutoscaler"

// eligible reports whether load balancers may send traffic to the node (KEP-3836).
func eligible(n *corev1.Node) bool {
	return n.DeletionTimestamp == nil &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == toBeDeleted })
}

// addressesChanged takes in the machine's addresses and, where asked to, keeps
// the Node object's at them.
func (a *Agent) addressesChanged(ctx context.Context, group *errgroup.Group) func([]netip.Addr) {
	if !a.config.Register {
		return a.state.setAddresses
	}
	latest := make(chan []netip.Addr, 1)
	m := &ownnode.Node{
		Client: a.client, Name: a.config.NodeName, Log: a.config.Log,
		About: func() ownnode.About {
			return ownnode.About{Version: a.config.version(), Mode: a.Mode(), Port: uint16(a.port.Load())}
		},
	}
	group.Go(func() error { m.Keep(ctx, latest, a.unregistered); return nil })
	group.Go(func() error { m.Heartbeat(ctx); return nil })
	return func(addresses []netip.Addr) {
		a.state.setAddresses(addresses)
		select { // only the newest matters
		case <-latest:
		default:
		}
		latest <- nodeaddrs.Primary(addresses)
	}
}
