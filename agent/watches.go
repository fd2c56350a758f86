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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/model"
)

// table gives the loop the latest table and tells the owners of Services what
// new problems it has.
func (a *Agent) table() *model.Table {
	table, problems, mark := a.state.table()
	if table != nil && table == a.inForce.Load() {
		a.metrics.unchanged(table) // what came changed nothing for this node
	}
	a.events.problems(problems)
	a.names.tabled(table, mark)
	return table
}

func (a *Agent) watchServices(ctx context.Context) {
	kube.Watch(ctx, kube.Source{Client: a.client.CoreV1().RESTClient(), Resource: "services"}, kube.Sink[*corev1.Service]{
		Set:    a.state.setService,
		Delete: a.state.deleteService,
		Synced: func() { a.state.complete(partServices) },
	})
}

// watchSlices leaves out the slices of headless Services, as kube-proxy does:
// nobody forwards them. Their names are wanted where DNS is served.
func (a *Agent) watchSlices(ctx context.Context) {
	source := kube.Source{
		Client: a.client.DiscoveryV1().RESTClient(), Resource: "endpointslices",
	}
	if a.config.DNS == nil {
		source.Labels = without(corev1.IsHeadlessService)
	}
	kube.Watch(ctx, source, kube.Sink[*discoveryv1.EndpointSlice]{
		Set:    a.state.setSlice,
		Delete: a.state.deleteSlice,
		Synced: func() { a.state.complete(partSlices) },
	})
}

// without selects objects that don't have a label.
func without(label string) labels.Selector {
	r, err := labels.NewRequirement(label, selection.DoesNotExist, nil)
	if err != nil {
		panic("label of the Kubernetes API is invalid: " + err.Error())
	}
	return labels.NewSelector().Add(*r)
}

// watchNode follows the Node of this machine. Without one the agent works too.
func (a *Agent) watchNode(ctx context.Context) {
	source := kube.Source{
		Client: a.client.CoreV1().RESTClient(), Resource: "nodes",
		Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, a.config.NodeName),
	}
	var found bool
	kube.Watch(ctx, source, kube.Sink[*corev1.Node]{
		Set: func(n *corev1.Node) {
			found = true
			a.health.setEligible(eligible(n))
			a.state.setNode(n)
		},
		Delete: func(types.NamespacedName) {
			a.config.Log.Warn("the Node object of this machine was deleted; forwarding goes on", "node", a.config.NodeName)
			a.health.setEligible(false)
		},
		Synced: func() {
			if !found {
				a.config.Log.Warn("there is no Node object of this machine yet; going on without", "node", a.config.NodeName)
				a.state.setNode(nil)
			}
		},
	})
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
	group.Go(func() error { a.keepRegistered(ctx, latest); return nil })
	return func(addresses []netip.Addr) {
		a.state.setAddresses(addresses)
		select { // only the newest matters
		case <-latest:
		default:
		}
		latest <- primaryAddresses(addresses)
	}
}

func (a *Agent) keepRegistered(ctx context.Context, latest <-chan []netip.Addr) {
	for {
		select {
		case <-ctx.Done():
			return
		case addresses := <-latest:
			backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 15 * time.Second}
			for {
				err := register(ctx, a.client, a.config.NodeName, addresses)
				if err == nil {
					break
				}
				pause := backoff.Step()
				a.config.Log.Warn("trying again", "error", err, "in", pause.Round(time.Millisecond))
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
			}
		}
	}
}
