package addresses

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/kube"
)

const (
	resourcePools  = "ipaddresspools"
	resourceStates = "configurationstates"
	// stateName names the ConfigurationState of this controller.
	stateName = "controller"
)

// watchPools follows the pools; synced is called once they are complete.
func (c *Controller) watchPools(ctx context.Context, synced func()) {
	source := kube.Source{Client: c.metallb.V1beta1, Resource: resourcePools, Namespace: c.options.Namespace}
	kube.Watch(ctx, source, kube.Sink[*v1beta1.IPAddressPool]{
		Set: func(p *v1beta1.IPAddressPool) {
			c.mu.Lock()
			old := c.pools[p.Name]
			c.pools[p.Name] = p.DeepCopy()
			c.mu.Unlock()
			if old == nil || old.Generation != p.Generation || old.UID != p.UID {
				c.changed()
			}
		},
		Delete: func(key types.NamespacedName) {
			c.mu.Lock()
			delete(c.pools, key.Name)
			c.mu.Unlock()
			poolGone(key.Name)
			c.changed()
		},
		Synced: synced,
	})
}

// nodeChanged reads the pools again if a node's addresses changed: no Service
// may have one.
func (c *Controller) nodeChanged(old, new *corev1.Node) {
	if new == nil {
		c.nodesGone.Store(true)
		c.mu.Lock()
		c.gone = append(c.gone, old.Name)
		c.mu.Unlock()
	}
	if old == nil || new == nil {
		select {
		case c.keyDue <- struct{}{}:
		default:
		}
	}
	if old != nil && new != nil && slices.Equal(nodeAddresses(old), nodeAddresses(new)) {
		return
	}
	c.changed()
}

func (c *Controller) changed() {
	select {
	case c.reread <- struct{}{}:
	default:
	}
}

// follow takes in changes of the pools and has all Services looked at anew.
func (c *Controller) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.reread:
		}
		c.configure()
		c.eachService(func(s *corev1.Service) {
			if wants(s, c.options.Class) {
				c.serviceChanged(nil, s)
			}
		})
	}
}

// eachService does something with all Services.
func (c *Controller) eachService(do func(*corev1.Service)) {
	services, err := c.cluster.Services.List(labels.Everything())
	if err != nil {
		c.log.Warn("Services could not be listed", "error", err)
	}
	for _, s := range services {
		do(s)
	}
}

// configure gives the allocator the pools as they are now.
func (c *Controller) configure() {
	nodes, err := c.cluster.Nodes.List(labels.Everything())
	if err != nil {
		c.log.Warn("Nodes could not be listed", "error", err)
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return compareNames(a.Name, b.Name) })
	c.mu.Lock()
	defer c.mu.Unlock()
	var objects []*v1beta1.IPAddressPool
	for _, p := range c.pools {
		objects = append(objects, p)
	}
	pools, problems := read(objects, reservedOf(c.options.ServiceCIDRs, nodes))
	c.allocator.SetPools(pools)
	for _, p := range problems {
		if !slices.Contains(c.problems, p) {
			c.log.Warn("part of a pool is left out", "pool", p.pool, "reason", p.text)
			c.recorder.Event(c.reference(p.pool), corev1.EventTypeWarning, reasonPool, p.text)
		}
	}
	c.problems = problems
	c.reports.Add("")
	for name := range c.pools {
		c.counted(name)
	}
}

func compareNames(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func (c *Controller) reference(pool string) *corev1.ObjectReference {
	r := &corev1.ObjectReference{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "IPAddressPool", Namespace: c.options.Namespace, Name: pool,
	}
	if p := c.pools[pool]; p != nil {
		r.UID = p.UID
	}
	return r
}

// report writes a pool's counts or, for "", the ConfigurationState.
func (c *Controller) report(ctx context.Context, pool string) error {
	if pool == "" {
		return c.reportState(ctx)
	}
	counts, ok := c.allocator.Counts()[pool]
	c.mu.Lock()
	object := c.pools[pool]
	c.mu.Unlock()
	if !ok || object == nil {
		return nil
	}
	poolCounted(pool, counts)
	want := v1beta1.IPAddressPoolStatus(counts)
	if object.Status == want {
		return nil
	}
	body, err := json.Marshal(map[string]any{"status": want})
	if err != nil {
		return fmt.Errorf("write counts of pool %s: %w", pool, err)
	}
	err = c.metallb.V1beta1.Patch(types.MergePatchType).Namespace(c.options.Namespace).Resource(resourcePools).
		Name(pool).SubResource("status").Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write counts of pool %s: %w", pool, err)
	}
	return nil
}

// reportState writes whether the configuration has faults.
func (c *Controller) reportState(ctx context.Context) error {
	c.mu.Lock()
	problems := c.problems
	c.mu.Unlock()
	state, err := c.state(ctx)
	if err != nil || state == nil {
		return err
	}
	before := state.Status.DeepCopy()
	condition := metav1.Condition{Type: "PoolsValid", Status: metav1.ConditionTrue, Reason: "Valid", Message: "all pools are in force"}
	state.Status.Result, state.Status.ErrorSummary = v1beta1.ConfigurationValid, ""
	if len(problems) > 0 {
		state.Status.Result, state.Status.ErrorSummary = v1beta1.ConfigurationInvalid, summary(problems)
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonPool, summary(problems)
	}
	changed := meta.SetStatusCondition(&state.Status.Conditions, condition)
	if !changed && before.Result == state.Status.Result && before.ErrorSummary == state.Status.ErrorSummary {
		return nil
	}
	err = c.metallb.V1beta1.Put().Namespace(c.options.Namespace).Resource(resourceStates).
		Name(stateName).SubResource("status").Body(state).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write ConfigurationState %s: %w", stateName, err)
	}
	return nil
}

// state returns the ConfigurationState, made if need be; nil where the cluster
// has no such kind, as before MetalLB 0.16, or no such namespace.
func (c *Controller) state(ctx context.Context) (*v1beta1.ConfigurationState, error) {
	state := &v1beta1.ConfigurationState{}
	err := c.metallb.V1beta1.Get().Namespace(c.options.Namespace).Resource(resourceStates).Name(stateName).Do(ctx).Into(state)
	if !apierrors.IsNotFound(err) {
		if err != nil {
			return nil, fmt.Errorf("get ConfigurationState %s: %w", stateName, err)
		}
		return state, nil
	}
	state = &v1beta1.ConfigurationState{ObjectMeta: metav1.ObjectMeta{
		Name: stateName, Namespace: c.options.Namespace,
		Labels: map[string]string{v1beta1.LabelComponent: "controller"},
	}}
	err = c.metallb.V1beta1.Post().Namespace(c.options.Namespace).Resource(resourceStates).Body(state).Do(ctx).Into(state)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("create ConfigurationState %s: %w", stateName, err)
	}
	return state, nil
}
