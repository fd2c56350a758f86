package apiserver

import (
	"fmt"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/fairway-net/fairway/apiserver/registry"
	"github.com/fairway-net/fairway/apiserver/scheme"
	"github.com/fairway-net/fairway/apiserver/validation"
)

// installer serves kinds as GenericAPIServer.InstallLegacyAPIGroup and
// InstallAPIGroups do, which leave no way to say how objects are typed for
// managed fields and how new ones are made.
type installer struct {
	server *genericapiserver.GenericAPIServer
	config *genericapiserver.Config
	types  *scheme.Scheme
	typed  managedfields.TypeConverter
}

// install serves all kinds.
func (s *Server) install(types *scheme.Scheme, config *genericapiserver.Config) error {
	groups, err := registry.Open(types.Scheme, s.options, s.allocator, validation.Cluster{ServiceCIDRs: s.allocator.Prefixes}, s.access.kinds(), s.config.Kubelet, s.nodeAgents(),
		registry.Acting{Pods: s.config.Kubelet != "", Events: s.recorder()})
	if err != nil {
		return err
	}
	if s.countable, err = newCountable(groups, s); err != nil {
		return err
	}
	s.access.objects.resources = groups[corev1.SchemeGroupVersion]
	i := installer{server: s.generic, config: config, types: types}
	if i.typed, err = i.typeConverter(groups); err != nil {
		return err
	}
	for _, gv := range scheme.GroupVersions {
		resources, ok := groups[gv]
		if !ok {
			continue
		}
		if err := i.group(gv, resources); err != nil {
			return fmt.Errorf("serve API group %s: %w", gv, err)
		}
	}
	return nil
}

// typeConverter knows the OpenAPI schemas of all kinds.
func (i *installer) typeConverter(groups map[schema.GroupVersion]registry.Resources) (managedfields.TypeConverter, error) {
	var samples []runtime.Object
	for gv, resources := range groups {
		for name, storage := range resources {
			kind, err := endpoints.GetResourceKind(gv, storage, i.types)
			if err != nil {
				return nil, fmt.Errorf("find kind of %s: %w", name, err)
			}
			sample, err := i.types.New(kind)
			if err != nil {
				return nil, fmt.Errorf("make a %s: %w", kind, err)
			}
			samples = append(samples, sample)
		}
	}
	return newTypeConverter(i.config.OpenAPIV3Config, samples)
}

// group serves one version of a group and says so.
func (i *installer) group(gv schema.GroupVersion, resources registry.Resources) error {
	info := genericapiserver.NewDefaultAPIGroupInfo(gv.Group, i.types.Scheme, i.types.Parameters, i.types.Codecs)
	found, err := i.serve(gv, &info, resources)
	if err != nil {
		return err
	}
	version := apidiscoveryv2.APIVersionDiscovery{Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: gv.Version, Resources: found}
	if gv.Group == "" {
		i.server.AggregatedLegacyDiscoveryGroupManager.AddGroupVersion(gv.Group, version)
		root := discovery.NewLegacyRootAPIHandler(i.config.DiscoveryAddresses, i.server.Serializer, genericapiserver.DefaultLegacyAPIPrefix)
		manager := i.server.AggregatedLegacyDiscoveryGroupManager
		i.server.Handler.GoRestfulContainer.Add(aggregated.WrapAggregatedDiscoveryToHandler(root, manager, manager).
			GenerateWebService(genericapiserver.DefaultLegacyAPIPrefix, metav1.APIVersions{}))
		return nil
	}
	i.server.AggregatedDiscoveryGroupManager.AddGroupVersion(gv.Group, version)
	served := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	group := metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served}
	i.server.DiscoveryGroupManager.AddGroup(group)
	i.server.Handler.GoRestfulContainer.Add(discovery.NewAPIGroupHandler(i.server.Serializer, group).WebService())
	return nil
}

// serve adds the paths of a group's resources.
func (i *installer) serve(gv schema.GroupVersion, info *genericapiserver.APIGroupInfo, resources registry.Resources) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	root, name := genericapiserver.APIGroupPrefix, gv.String()
	if gv.Group == "" {
		root, name = genericapiserver.DefaultLegacyAPIPrefix, gv.Version
	}
	storage, versions := map[string]rest.Storage{}, map[string][]string{}
	for resource, s := range resources {
		storage[resource], versions[resource] = s, []string{name}
		if s, ok := s.(rest.StorageWithReadiness); ok {
			i.server.StorageReadinessHook.RegisterStorage(metav1.GroupVersionResource{Group: gv.Group, Version: gv.Version, Resource: resource}, s)
		}
	}
	i.server.RegisterDestroyFunc(func() {
		for _, s := range storage {
			s.Destroy()
		}
	})
	api := &endpoints.APIGroupVersion{
		Root:                        root,
		GroupVersion:                gv,
		Storage:                     storage,
		AllServedVersionsByResource: versions,
		OptionsExternalVersion:      info.OptionsExternalVersion,
		MetaGroupVersion:            info.MetaGroupVersion,
		Serializer:                  info.NegotiatedSerializer,
		ParameterCodec:              info.ParameterCodec,
		Typer:                       i.types,
		Creater:                     creater{i.types},
		Convertor:                   i.types,
		ConvertabilityChecker:       i.types,
		Defaulter:                   i.types,
		Namer:                       runtime.Namer(meta.NewAccessor()),
		UnsafeConvertor:             runtime.UnsafeObjectConvertor(i.types.Scheme),
		TypeConverter:               i.typed,
		EquivalentResourceRegistry:  i.server.EquivalentResourceRegistry,
		Authorizer:                  i.config.Authorization.Authorizer,
		Admit:                       i.config.AdmissionControl,
		MinRequestTimeout:           time.Duration(i.config.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes:         i.config.MaxRequestBodyBytes,
	}
	found, _, err := api.InstallREST(i.server.Handler.GoRestfulContainer)
	return found, err
}
