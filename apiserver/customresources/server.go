// Package customresources serves CustomResourceDefinitions and the objects that
// they define, by k8s.io/apiextensions-apiserver, in the process of the API
// server: schemas, defaults, CEL rules, printer columns, the status and scale
// subresources, discovery and OpenAPI are Kubernetes' own.
//
// The library is made for a chain of servers with an aggregator at its head.
// There is no aggregator here. The main server delegates paths that it doesn't
// know to the library's server; what an aggregator would merge is merged here:
//
//	server.go     the delegate, and its paths in the main server
//	synced.go     when the definitions are read
//	discovery.go  the groups of custom resources in plain /apis
//	openapi.go    their schemas in /openapi/v2 and /openapi/v3
//	builtin.go    definitions that every server has from its start
package customresources

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/kube-openapi/pkg/common"
)

// Storage gives the options by which resources are stored in a codec's form.
type Storage interface {
	WithCodec(runtime.Codec) generic.RESTOptionsGetter
}

// Server serves custom resources as a delegate of the main server.
type Server struct {
	library *library.CustomResourceDefinitions
	synced  chan struct{} // closed when the definitions are read
	v2      *common.Config
	v3      *common.OpenAPIV3Config
}

// New makes the delegate from the main server's configuration, which it
// completes for both: they share one manager of aggregated discovery.
// Definitions are stored as JSON, as in Kubernetes, and so are custom objects. The
// resolver finds the Services by which conversion webhooks are named.
func New(main *genericapiserver.RecommendedConfig, storage Storage, resolver webhook.ServiceResolver) (*Server, error) {
	main.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	shared := *main
	shared.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	disableLibraryHook(&shared)
	shared.Serializer = library.Codecs
	shared.MergedResourceConfig = library.DefaultAPIResourceConfigSource()
	shared.RESTOptionsGetter = storage.WithCodec(library.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	// The main server has the OpenAPI documents of both, made by a start hook: openapi.go.
	main.SkipOpenAPIInstallation, shared.SkipOpenAPIInstallation = true, true
	config := library.Config{
		GenericConfig: &shared,
		ExtraConfig: library.ExtraConfig{
			CRDRESTOptionsGetter: storage.WithCodec(unstructured.UnstructuredJSONScheme),
			MasterCount:          1,
			ServiceResolver:      resolver,
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, main.LoopbackClientConfig, noop.NewTracerProvider()),
		},
	}
	served, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("create server of custom resources: %w", err)
	}
	return &Server{library: served, synced: make(chan struct{}), v2: main.OpenAPIConfig, v3: main.OpenAPIV3Config}, nil
}

// Delegate is what the main server passes requests on to.
func (s *Server) Delegate() genericapiserver.DelegationTarget {
	return delegate{s.library.GenericAPIServer, s.synced}
}

// Join makes main, which delegates to this server, show what it serves. It must
// be called before main is prepared to run.
func (s *Server) Join(main *genericapiserver.GenericAPIServer) error {
	// As the main server's own, the paths of CustomResourceDefinitions are part
	// of its OpenAPI documents.
	for _, service := range s.library.GenericAPIServer.Handler.GoRestfulContainer.RegisteredWebServices() {
		if strings.HasPrefix(service.RootPath(), genericapiserver.APIGroupPrefix+"/"+apiextensions.GroupName) {
			main.Handler.GoRestfulContainer.Add(service)
		}
	}
	groups, err := newGroups(main.DiscoveryGroupManager, s.definitions())
	if err != nil {
		return err
	}
	documents := newDocuments(main, s.v2, s.v3, s.definitions())
	if err := main.AddPostStartHook(syncedHook, s.awaitSynced); err != nil {
		return fmt.Errorf("add start hook: %w", err)
	}
	if err := main.AddPostStartHook("custom-resources-discovery", groups.start); err != nil {
		return fmt.Errorf("add start hook: %w", err)
	}
	if err := main.AddPostStartHook("custom-resources-openapi", documents.start); err != nil {
		return fmt.Errorf("add start hook: %w", err)
	}
	return nil
}

func (s *Server) definitions() informers.CustomResourceDefinitionInformer {
	return s.library.Informers.Apiextensions().V1().CustomResourceDefinitions()
}
