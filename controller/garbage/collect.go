package garbage

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// sync looks at one object: whether its owners still want it, and whether its
// own deletion waits for its dependents.
func (c *Controller) sync(ctx context.Context, uid types.UID) error {
	o := c.graph.get(uid)
	switch {
	case o == nil:
		return nil
	case o.deleting && o.orphan:
		return c.orphanDependents(ctx, o)
	case o.waits():
		return c.deleteDependents(ctx, o)
	case o.deleting || len(o.owners) == 0:
		return nil
	}
	solid, waiting := 0, false
	var unwanted []types.UID
	for _, ref := range o.owners {
		known := c.graph.get(ref.uid)
		exists, err := c.exists(ctx, o, ref, known)
		switch {
		case err != nil:
			return err
		case !exists:
			unwanted = append(unwanted, ref.uid)
		case known != nil && known.waits():
			unwanted, waiting = append(unwanted, ref.uid), true
		default:
			solid++
		}
	}
	switch {
	case len(unwanted) == 0:
		return nil
	case solid > 0:
		return c.disown(ctx, o, unwanted)
	}
	return c.collect(ctx, o, waiting && len(c.graph.dependentsOf(o.uid)) > 0)
}

// exists reports whether the owner is there. What the graph does not know is
// asked of the server before anything is deleted for it.
func (c *Controller) exists(ctx context.Context, o *object, ref owner, known *object) (bool, error) {
	// An owner is in the dependent's namespace or in none.
	if known != nil && (known.namespace == "" || known.namespace == o.namespace) {
		return true, nil
	}
	if known == nil && c.graph.wasDeleted(ref.uid) {
		return false, nil
	}
	kind := ref.kind.Value()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		// Of a kind that this server does not have nothing can be said.
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("find resource of owner %s %s: %w", kind.Kind, ref.name, err)
	}
	client := metadata.ResourceInterface(c.objects.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.namespace == "" {
			// A reference that can't be meant: which namespace?
			return true, nil
		}
		client = c.objects.Resource(mapping.Resource).Namespace(o.namespace)
	}
	found, err := client.Get(ctx, ref.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get owner %s %s: %w", kind.Kind, ref.name, err)
	}
	return found.UID == ref.uid, nil
}

// collect deletes o in the way that its finalizers ask for, or in the
// foreground if an owner waits for it and o has dependents itself.
func (c *Controller) collect(ctx context.Context, o *object, foreground bool) error {
	live, err := c.live(ctx, o)
	if live == nil || err != nil {
		return err
	}
	if !sameOwners(o, live) {
		// The watch will bring the news.
		return nil
	}
	if foreground && c.closesCircle(o) {
		// Otherwise each would wait for the other.
		if err := c.unblock(ctx, o, live); err != nil {
			return err
		}
		if live, err = c.live(ctx, o); live == nil || err != nil {
			return err
		}
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case foreground || slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	err = c.client(o).Delete(ctx, o.name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s: %w", o.kind.Resource, o.namespace, o.name, err)
	}
	return nil
}

// closesCircle says whether one of o's own dependents waits for its dependents, of
// which o may be one.
func (c *Controller) closesCircle(o *object) bool {
	return slices.ContainsFunc(c.graph.dependentsOf(o.uid), func(d *object) bool { return d.waits() })
}

// unblock has o's owners not wait for it.
func (c *Controller) unblock(ctx context.Context, o *object, live *metav1.PartialObjectMetadata) error {
	no, blocks := false, false
	owners := slices.Clone(live.OwnerReferences)
	for i := range owners {
		blocks = blocks || owners[i].BlockOwnerDeletion != nil && *owners[i].BlockOwnerDeletion
		owners[i].BlockOwnerDeletion = &no
	}
	if !blocks {
		return nil
	}
	return c.patch(ctx, o, live, "ownerReferences", owners)
}

// deleteDependents asks for a look at what o, deleted in the foreground, still
// waits for, and lets go of o when nothing holds it any more.
func (c *Controller) deleteDependents(ctx context.Context, o *object) error {
	blocked := false
	for _, dependent := range c.graph.dependentsOf(o.uid) {
		if !dependent.deleting {
			c.queue.Add(dependent.uid)
		}
		if ref, ok := dependent.ref(o.uid); ok && ref.blocks {
			blocked = true
		}
	}
	if blocked {
		return nil
	}
	return c.removeFinalizer(ctx, o, metav1.FinalizerDeleteDependents)
}

// orphanDependents takes o from the owners of its dependents, then lets go of it.
func (c *Controller) orphanDependents(ctx context.Context, o *object) error {
	for _, dependent := range c.graph.dependentsOf(o.uid) {
		if err := c.disown(ctx, dependent, []types.UID{o.uid}); err != nil {
			return err
		}
	}
	return c.removeFinalizer(ctx, o, metav1.FinalizerOrphanDependents)
}

// disown removes the given owners from o.
func (c *Controller) disown(ctx context.Context, o *object, unwanted []types.UID) error {
	live, err := c.live(ctx, o)
	if live == nil || err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(live.OwnerReferences), func(r metav1.OwnerReference) bool {
		return slices.Contains(unwanted, r.UID)
	})
	if len(kept) == len(live.OwnerReferences) {
		return nil
	}
	return c.patch(ctx, o, live, "ownerReferences", kept)
}

func (c *Controller) removeFinalizer(ctx context.Context, o *object, finalizer string) error {
	live, err := c.live(ctx, o)
	if live == nil || err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == finalizer })
	if len(kept) == len(live.Finalizers) {
		return nil
	}
	return c.patch(ctx, o, live, "finalizers", kept)
}

// live returns the object as the server has it, or nil if it is gone.
func (c *Controller) live(ctx context.Context, o *object) (*metav1.PartialObjectMetadata, error) {
	live, err := c.client(o).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.UID != o.uid {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s/%s: %w", o.kind.Resource, o.namespace, o.name, err)
	}
	return live, nil
}

// patch sets one field of the metadata, provided that nothing has changed since live.
func (c *Controller) patch(ctx context.Context, o *object, live *metav1.PartialObjectMetadata, field string, value any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             live.UID,
		"resourceVersion": live.ResourceVersion,
		field:             value,
	}})
	if err != nil {
		return fmt.Errorf("encode %s of %s %s/%s: %w", field, o.kind.Resource, o.namespace, o.name, err)
	}
	_, err = c.client(o).Patch(ctx, o.name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("set %s of %s %s/%s: %w", field, o.kind.Resource, o.namespace, o.name, err)
	}
	return nil
}

func (c *Controller) client(o *object) metadata.ResourceInterface {
	if o.namespace == "" {
		return c.objects.Resource(o.kind)
	}
	return c.objects.Resource(o.kind).Namespace(o.namespace)
}

func sameOwners(o *object, live *metav1.PartialObjectMetadata) bool {
	if len(o.owners) != len(live.OwnerReferences) {
		return false
	}
	for _, ref := range live.OwnerReferences {
		if _, ok := o.ref(ref.UID); !ok {
			return false
		}
	}
	return true
}
