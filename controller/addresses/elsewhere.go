package addresses

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/kube"
)

// ReasonNothingActs is that of Events about objects in a namespace where they don't count.
const ReasonNothingActs = "NothingActs"

// watchElsewhere has an Event written on each pool and advertisement in another namespace than the
// one that counts.
func (c *Controller) watchElsewhere(ctx context.Context) {
	var watches sync.WaitGroup
	watches.Go(func() { watchElsewhere[*v1beta1.IPAddressPool](ctx, c, resourcePools, "IPAddressPool") })
	watches.Go(func() { watchElsewhere[*v1beta1.L2Advertisement](ctx, c, "l2advertisements", "L2Advertisement") })
	watches.Go(func() { watchElsewhere[*v1beta1.BGPAdvertisement](ctx, c, "bgpadvertisements", "BGPAdvertisement") })
	watches.Wait()
}

func watchElsewhere[T interface {
	runtime.Object
	metav1.Object
}](ctx context.Context, c *Controller, resource, kind string) {
	told := map[types.NamespacedName]types.UID{}
	source := kube.Source{Client: c.metallb.V1beta1, Resource: resource, Fields: fields.OneTermNotEqualSelector("metadata.namespace", c.options.Namespace)}
	kube.Watch(ctx, source, kube.Sink[T]{
		Set: func(o T) {
			name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
			if told[name] == o.GetUID() {
				return
			}
			told[name] = o.GetUID()
			c.recorder.Event(&corev1.ObjectReference{APIVersion: v1beta1.GroupVersion.String(), Kind: kind, Namespace: name.Namespace, Name: name.Name, UID: o.GetUID()},
				corev1.EventTypeWarning, ReasonNothingActs, fmt.Sprintf("it counts in namespace %s only", c.options.Namespace))
		},
		Delete: func(name types.NamespacedName) { delete(told, name) },
		Synced: func() {},
	})
}
