package nodelife

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// silencedBy is the annotation of an EndpointSlice that notes, for each silent
// node, which endpoints were ready before. Whoever publishes the slice anew
// drops it, and has the last word.
const silencedBy = "fairway.dev/not-ready-since-silent-"

// pageSize bounds how many slices are held at a time.
const pageSize = 500

// markSlices makes the endpoints on a node not ready, or ready again. Slices
// that follow Pods are left to their controllers.
func (c *Controller) markSlices(ctx context.Context, node string, silent bool) error {
	client := c.cluster.Client.DiscoveryV1()
	options := metav1.ListOptions{
		Limit:         pageSize,
		LabelSelector: discoveryv1.LabelManagedBy + " notin (endpointslice-controller.k8s.io,endpointslicemirroring-controller.k8s.io)",
	}
	var errs []error
	for {
		list, err := client.EndpointSlices(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list EndpointSlices: %w", err)
		}
		for i := range list.Items {
			slice := &list.Items[i]
			if !markSlice(slice, node, silent) {
				continue
			}
			if _, err := client.EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("update EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err))
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return errors.Join(errs...)
		}
	}
}

// markSlice reports whether it changed the slice.
func markSlice(slice *discoveryv1.EndpointSlice, node string, silent bool) bool {
	key := silencedBy + node
	if !silent {
		return restore(slice, key)
	}
	var changed []string
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.NodeName == nil || *e.NodeName != node || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		no := false
		e.Conditions.Ready, e.Conditions.Serving = &no, &no
		changed = append(changed, strconv.Itoa(i))
	}
	if len(changed) == 0 {
		return false
	}
	if slice.Annotations == nil {
		slice.Annotations = map[string]string{}
	}
	slice.Annotations[key] = strings.Join(changed, ",")
	return true
}

func restore(slice *discoveryv1.EndpointSlice, key string) bool {
	value, silenced := slice.Annotations[key]
	if !silenced {
		return false
	}
	delete(slice.Annotations, key)
	for field := range strings.SplitSeq(value, ",") {
		if i, err := strconv.Atoi(field); err == nil && i >= 0 && i < len(slice.Endpoints) {
			yes := true
			slice.Endpoints[i].Conditions.Ready, slice.Endpoints[i].Conditions.Serving = &yes, nil
		}
	}
	return true
}
