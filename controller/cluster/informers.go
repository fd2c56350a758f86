package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Informers are those that a controller has of its own, beside the Cache's. The zero
// value has none.
type Informers struct {
	factories []informers.SharedInformerFactory
	synced    []cache.InformerSynced
}

// Of makes a factory of informers of the objects that options select; of all objects
// if options is nil. What they keep is trimmed, see Trim.
func (i *Informers) Of(client kubernetes.Interface, options func(*metav1.ListOptions)) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(Trim), informers.WithTweakListOptions(options))
	i.factories = append(i.factories, factory)
	return factory
}

// Handle adds a handler of an informer's objects.
func (i *Informers) Handle(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return err
	}
	i.synced = append(i.synced, registration.HasSynced)
	return nil
}

// Run starts the informers and calls work when all handlers have heard of what there
// is. It returns after work and the informers have ended.
func (i *Informers) Run(ctx context.Context, work func()) {
	for _, f := range i.factories {
		f.StartWithContext(ctx)
		defer f.Shutdown()
	}
	if cache.WaitForCacheSync(ctx.Done(), i.synced...) {
		work()
	}
}
