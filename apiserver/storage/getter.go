package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/fairway-net/fairway/apiserver/scheme"
)

// keyPrefix is where objects are stored, as in Kubernetes.
const keyPrefix = "/registry"

// RESTOptions tells the generic registry how each resource is stored: as
// protobuf, behind a watch cache, on the one etcd client.
type RESTOptions struct {
	backend   *Backend
	factory   *serverstorage.DefaultStorageFactory
	compactor etcd3.Compactor
	stop      func()
	claims    map[schema.GroupResource]Claims
	// encrypted says how resources are stored that aren't in the clear.
	encrypted map[schema.GroupResource]value.Transformer
	// counted is told how many objects there are of each resource; nil counts none.
	counted request.StorageObjectCountTracker
	// written is told what is stored; nil tells nobody.
	written func(ctx context.Context, resource schema.GroupResource, bytes int)
}

// OnWrite has f told the bytes of each object that a request stores. It is for before
// stores are opened.
func (o *RESTOptions) OnWrite(f func(ctx context.Context, resource schema.GroupResource, bytes int)) {
	o.written = f
}

// meter tells of what passes a transformer on its way to the store.
type meter struct {
	value.Transformer
	resource schema.GroupResource
	written  func(ctx context.Context, resource schema.GroupResource, bytes int)
}

// TransformToStorage implements value.Transformer.
func (m meter) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	out, err := m.Transformer.TransformToStorage(ctx, data, dataCtx)
	if err == nil {
		m.written(ctx, m.resource, len(out))
	}
	return out, err
}

// countPeriod is how often objects are counted, as in kube-apiserver.
const countPeriod = time.Minute

// Count has objects of each resource counted. It is for before stores are opened.
func (o *RESTOptions) Count(tracker request.StorageObjectCountTracker) { o.counted = tracker }

// count adds to a resource's options that it is counted.
func (o *RESTOptions) count(options generic.RESTOptions) generic.RESTOptions {
	if o.counted != nil {
		options.CountMetricPollPeriod = countPeriod
		options.StorageConfig.StorageObjectCountTracker = o.counted
	}
	return options
}

// Encrypt stores a resource by a transformer.
func (o *RESTOptions) Encrypt(resource schema.GroupResource, t value.Transformer) {
	o.encrypted[resource] = t
}

// NewRESTOptions returns the storage options for a scheme's resources. Writes
// to the resources in claims also take and give back the keys that they claim.
func NewRESTOptions(b *Backend, s *scheme.Scheme, claims map[schema.GroupResource]Claims) *RESTOptions {
	config := storagebackend.NewDefaultConfig(keyPrefix, nil)
	compactor := etcd3.NewCompactor(b.Client.Client, config.CompactionInterval, clock.RealClock{}, nil)
	return &RESTOptions{
		backend: b,
		factory: serverstorage.NewDefaultStorageFactory(
			*config, runtime.ContentTypeProtobuf, s.Codecs,
			serverstorage.NewDefaultResourceEncodingConfig(s.Scheme),
			serverstorage.NewResourceConfig(), nil),
		compactor: compactor,
		stop:      compactor.Stop,
		claims:    claims,
		encrypted: map[schema.GroupResource]value.Transformer{},
	}
}

// Stop ends compaction; the backend stays open.
func (o *RESTOptions) Stop() { o.stop() }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *RESTOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config, err := o.factory.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("configure storage of %s: %w", resource, err)
	}
	return o.count(generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               o.decorate,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 4,
		ResourcePrefix:          o.factory.ResourcePrefix(resource),
	}), nil
}

// WithCodec returns options for resources that the scheme doesn't know: they are
// stored as codec writes them, under the name of their group and resource.
func (o *RESTOptions) WithCodec(codec runtime.Codec) generic.RESTOptionsGetter {
	return codecOptions{o, codec}
}

type codecOptions struct {
	options *RESTOptions
	codec   runtime.Codec
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o codecOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return o.options.count(generic.RESTOptions{
		StorageConfig:           storagebackend.NewDefaultConfig(keyPrefix, o.codec).ForResource(resource),
		Decorator:               o.options.decorate,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 4,
		ResourcePrefix:          resource.Group + "/" + resource.Resource,
	}), nil
}

// decorate opens a resource's store: etcd below, a watch cache above it, and what reads pages
// ahead on top.
func (o *RESTOptions) decorate(
	config *storagebackend.ConfigForResource, prefix string,
	keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	attrs apistorage.AttrFunc, triggers apistorage.IndexerFuncs, indexers *cache.Indexers,
) (apistorage.Interface, factory.DestroyFunc, error) {
	client := ofResource(o.backend.Client.Client, config.GroupResource.String())
	if claims, ok := o.claims[config.GroupResource]; ok {
		client.Kubernetes = &claimingClient{Interface: client.Kubernetes, kv: client.KV, claims: claims}
	}
	if o.backend.disk != nil {
		client.Kubernetes = &guardedClient{Interface: client.Kubernetes, disk: o.backend.disk}
	}
	if o.backend.etcd != nil {
		client.Kubernetes = &quorumClient{Interface: client.Kubernetes, backend: o.backend}
	}
	transformer, ok := o.encrypted[config.GroupResource]
	if !ok {
		transformer = identity.NewEncryptCheckTransformer()
	}
	if o.written != nil {
		transformer = meter{transformer, config.GroupResource, o.written}
	}
	versioner := apistorage.APIObjectVersioner{}
	store, err := etcd3.New(client, o.compactor, config.Codec, newFunc, newListFunc, config.Prefix, prefix,
		config.GroupResource, transformer, config.LeaseManagerConfig,
		etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("open storage of %s: %w", config.GroupResource, err)
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             store,
		Versioner:           versioner,
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      prefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attrs,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
	if err != nil {
		store.Close()
		return nil, nil, fmt.Errorf("open watch cache of %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(cached, store)
	pages := &pager{Interface: delegator, keyFunc: keyFunc}
	return pages, sync.OnceFunc(func() {
		pages.stop()
		delegator.Stop()
		cached.Stop()
		store.Close()
	}), nil
}
