// Package deployment is the lab's controller of Deployments. As in Kubernetes, each
// template that a Deployment has had is a ReplicaSet, and a rollout moves replicas
// from the old ones to the newest; package replicaset makes their pods.
//
//   - plan.go: how many replicas each ReplicaSet shall have now
//   - sets.go: the ReplicaSets of a Deployment, and the one of its present template
//   - revision.go: revisions, and what kubectl rollout undo and history read
//   - status.go: what kubectl rollout status reads
package deployment

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

// Controller keeps the ReplicaSets of Deployments as their templates say.
type Controller struct {
	client      kubernetes.Interface
	events      record.EventRecorder
	deployments appslisters.DeploymentLister
	sets        appslisters.ReplicaSetLister
	synced      []cache.InformerSynced
	queue       *queue.Queue[types.NamespacedName]
}

// New makes a controller on a factory's informers, which the caller starts.
func New(client kubernetes.Interface, factory informers.SharedInformerFactory, events record.EventRecorder) (*Controller, error) {
	deployments, sets := factory.Apps().V1().Deployments(), factory.Apps().V1().ReplicaSets()
	c := &Controller{client: client, events: events, deployments: deployments.Lister(), sets: sets.Lister()}
	c.queue = queue.New(slog.With("controller", "deployment"), c.sync)
	own, err := deployments.Informer().AddEventHandler(cluster.Change[appsv1.Deployment](c.changed))
	if err != nil {
		return nil, fmt.Errorf("watch deployments: %w", err)
	}
	theirs, err := sets.Informer().AddEventHandler(cluster.Change[appsv1.ReplicaSet](c.setChanged))
	if err != nil {
		return nil, fmt.Errorf("watch replicasets: %w", err)
	}
	c.synced = []cache.InformerSynced{own.HasSynced, theirs.HasSynced}
	return c, nil
}

func (c *Controller) changed(_, new *appsv1.Deployment) {
	if new != nil {
		c.queue.Add(types.NamespacedName{Namespace: new.Namespace, Name: new.Name})
	}
}

// setChanged queues the Deployment that a ReplicaSet belongs to.
func (c *Controller) setChanged(old, new *appsv1.ReplicaSet) {
	set := new
	if set == nil {
		set = old
	}
	if ref := metav1.GetControllerOf(set); ref != nil && ref.Kind == "Deployment" {
		c.queue.Add(types.NamespacedName{Namespace: set.Namespace, Name: ref.Name})
	}
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		c.queue.Run(ctx, 1)
	}
}

// sync takes one step for a Deployment and writes its status.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	cached, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get deployment: %w", err)
	}
	if cached.DeletionTimestamp != nil || cached.Spec.Replicas == nil {
		return nil
	}
	s, err := c.observe(cached)
	if err != nil {
		return err
	}
	if err := c.step(ctx, &s); err != nil {
		return err
	}
	status, err := s.status()
	if err != nil {
		return err
	}
	if after := s.recheck(status); after > 0 {
		c.queue.AddAfter(key, min(after, time.Hour))
	}
	if s.collision {
		status.CollisionCount = new(int32)
		if before := cached.Status.CollisionCount; before != nil {
			*status.CollisionCount = *before
		}
		*status.CollisionCount++
	}
	if complete(cached, status) || cached.Spec.Paused {
		if err := c.forgetOld(ctx, s); err != nil {
			return err
		}
	}
	return c.writeStatus(ctx, s.deployment, status)
}

// step makes the ReplicaSet of the present template if the Deployment isn't
// paused, and scales all as planned.
func (c *Controller) step(ctx context.Context, s *state) error {
	p, err := s.plan()
	if err != nil {
		return err
	}
	if p.create {
		if err := c.create(ctx, s, p.replicas); err != nil || s.current == nil {
			return err
		}
	} else if err := c.annotate(ctx, s); err != nil {
		return err
	}
	if err := c.writeRevision(ctx, s); err != nil {
		return err
	}
	for i, set := range s.sets() {
		replicas, planned := p.scale[set.UID]
		if !planned {
			replicas = *set.Spec.Replicas
		}
		scaled, err := c.scale(ctx, s, set, replicas)
		if err != nil {
			return err
		}
		s.replace(i, scaled)
	}
	return nil
}

// scale gives a ReplicaSet a number of replicas, and notes what the Deployment
// wanted at that time.
func (c *Controller) scale(ctx context.Context, s *state, set *appsv1.ReplicaSet, replicas int32) (*appsv1.ReplicaSet, error) {
	before := *set.Spec.Replicas
	sizes, err := s.sizes()
	if err != nil {
		return nil, err
	}
	if before == 0 && replicas == 0 || before == replicas && has(set.Annotations, sizes) {
		return set, nil
	}
	changed := set.DeepCopy()
	changed.Spec.Replicas = &replicas
	maps.Copy(annotations(changed), sizes)
	changed, err = c.client.AppsV1().ReplicaSets(set.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("scale replicaset %s: %w", set.Name, err)
	}
	if before != replicas {
		how := "up"
		if replicas < before {
			how = "down"
		}
		c.events.Eventf(s.deployment, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", how, set.Name, before, replicas)
	}
	return changed, nil
}

func (c *Controller) writeStatus(ctx context.Context, cached *appsv1.Deployment, status appsv1.DeploymentStatus) error {
	if equality.Semantic.DeepEqual(cached.Status, status) {
		return nil
	}
	d := cached.DeepCopy()
	d.Status = status
	_, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // changed or gone meanwhile: the informer brings us back here
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
