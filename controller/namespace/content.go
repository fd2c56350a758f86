package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
)

// remains is what is left of a namespace after an attempt to empty it.
type remains struct {
	// resources and finalizers count the objects left, by resource, and those
	// of them that a finalizer holds, by finalizer.
	resources  map[string]int
	finalizers map[string]int
	discovery  error
	deletion   error
}

func (r *remains) empty() bool {
	return len(r.resources) == 0 && r.discovery == nil && r.deletion == nil
}

// empty deletes what the namespace holds, Pods first: what they use, and what
// sends traffic to them, stays until they have ended (KEP-5080).
func (c *Controller) empty(ctx context.Context, namespace string) *remains {
	left := &remains{resources: map[string]int{}, finalizers: map[string]int{}}
	kinds, err := c.kinds()
	if err != nil {
		// The kinds that were found are deleted nevertheless.
		left.discovery = err
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	if collectable, ok := kinds[pods]; ok {
		left.add(c.deleteAll(ctx, pods, collectable, namespace))
		delete(kinds, pods)
		if !left.empty() {
			return left
		}
	}
	for kind, collectable := range kinds {
		left.add(c.deleteAll(ctx, kind, collectable, namespace))
	}
	return left
}

// kinds returns the namespaced resources that can be listed and deleted, and
// whether the server deletes whole collections of them.
func (c *Controller) kinds() (map[schema.GroupVersionResource]bool, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(c.cluster.Client.Discovery())
	if err != nil {
		err = fmt.Errorf("discover resources: %w", err)
	}
	found := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		version, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("parse group version %q: %w", list.GroupVersion, parseErr))
			continue
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				found[version.WithResource(r.Name)] = slices.Contains(r.Verbs, "deletecollection")
			}
		}
	}
	return found, err
}

// deleteAll deletes the objects of one kind and returns those left.
func (c *Controller) deleteAll(ctx context.Context, kind schema.GroupVersionResource, collectable bool, namespace string) (schema.GroupVersionResource, []metav1.PartialObjectMetadata, error) {
	client := c.objects.Resource(kind).Namespace(namespace)
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	// There are many kinds, and most namespaces hold few of them: those of which
	// there is nothing aren't deleted. New objects are refused by now.
	if first, err := client.List(ctx, metav1.ListOptions{Limit: 1}); err == nil && len(first.Items) == 0 {
		return kind, nil, nil
	}
	var failed error
	if collectable {
		if err := client.DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil && !apierrors.IsNotFound(err) {
			failed = fmt.Errorf("delete all %s of %s: %w", kind.Resource, namespace, err)
		}
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return kind, nil, nil
	}
	if err != nil {
		return kind, nil, errors.Join(failed, fmt.Errorf("list %s of %s: %w", kind.Resource, namespace, err))
	}
	if collectable {
		return kind, list.Items, failed
	}
	var left []metav1.PartialObjectMetadata
	for _, item := range list.Items {
		err := client.Delete(ctx, item.Name, options)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("delete %s %s/%s: %w", kind.Resource, namespace, item.Name, err))
		}
		// Whether it is gone at once or waits for something shows next time.
		left = append(left, item)
	}
	return kind, left, failed
}

func (r *remains) add(kind schema.GroupVersionResource, left []metav1.PartialObjectMetadata, err error) {
	r.deletion = errors.Join(r.deletion, err)
	if len(left) > 0 {
		r.resources[kind.GroupResource().String()] += len(left)
	}
	for _, o := range left {
		for _, f := range o.Finalizers {
			r.finalizers[f]++
		}
	}
}
