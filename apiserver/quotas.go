package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"

	"github.com/fairway-net/fairway/apiserver/quota"
	"github.com/fairway-net/fairway/apiserver/registry"
)

// quotaWorkers is how many namespaces' writes are compared with quotas at a time, as in
// kube-apiserver.
const quotaWorkers = 5

// quotas is the plugin that refuses what ResourceQuotas have no room for.
func (s *Server) quotas(config *genericapiserver.RecommendedConfig, client kubernetes.Interface) (*resourcequota.QuotaAdmission, error) {
	plugin, err := resourcequota.NewResourceQuota(nil, quotaWorkers)
	if err != nil {
		return nil, fmt.Errorf("create quota admission: %w", err)
	}
	plugin.SetDrainedNotification(config.DrainedNotify())
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(config.SharedInformerFactory)
	plugin.SetQuotaConfiguration(quota.Configuration())
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, fmt.Errorf("set up quota admission: %w", err)
	}
	return plugin, nil
}

// countable lists what quotas count: built-in kinds from this server's memory, others by
// their metadata.
type countable struct {
	groups   map[schema.GroupVersion]registry.Resources
	metadata metadata.Interface
	mapper   meta.RESTMapper
}

func newCountable(groups map[schema.GroupVersion]registry.Resources, s *Server) (*countable, error) {
	client, err := metadata.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(s.LoopbackConfig())
	if err != nil {
		return nil, fmt.Errorf("create loopback client: %w", err)
	}
	return &countable{groups: groups, metadata: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}, nil
}

// CountQuota returns what of a ResourceQuota this server counts, with its limits, and how
// much of it is in use.
func (s *Server) CountQuota(ctx context.Context, q *corev1.ResourceQuota) (hard, used corev1.ResourceList, err error) {
	return quota.List(s.countable.list).Count(ctx, q)
}

func (c *countable) list(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error) {
	for gv, resources := range c.groups {
		storage, served := resources[resource.Resource]
		if !served || gv.Group != resource.Group {
			continue
		}
		lister, lists := storage.(rest.Lister)
		if scope, ok := storage.(rest.Scoper); !lists || !ok || !scope.NamespaceScoped() {
			return nil, quota.ErrNotServed
		}
		list, err := lister.List(genericapirequest.WithNamespace(ctx, namespace), &metainternalversion.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		return meta.ExtractList(list)
	}
	kind, err := c.mapper.ResourceFor(resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		return nil, quota.ErrNotServed
	}
	if err != nil {
		return nil, err
	}
	list, err := c.metadata.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}
