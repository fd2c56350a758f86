package customresources

import (
	"maps"

	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
)

// documents keeps the schemas of custom resources in the main server's OpenAPI
// documents. The library's controllers do the work.
type documents struct {
	server *genericapiserver.GenericAPIServer
	v2     *openapi.Controller
	v3     *openapiv3.Controller
}

func newDocuments(server *genericapiserver.GenericAPIServer, definitions informers.CustomResourceDefinitionInformer) *documents {
	return &documents{server: server, v2: openapi.NewController(definitions), v3: openapiv3.NewController(definitions)}
}

func (d *documents) start(hook genericapiserver.PostStartHookContext) error {
	go d.v2.Run(d.server.StaticOpenAPISpec, d.server.OpenAPIVersionedService, hook.Done())
	go d.v3.Run(d.server.OpenAPIV3VersionedService, hook.Done())
	return nil
}

// Scheme knows the kinds of the group apiextensions.k8s.io.
func Scheme() *runtime.Scheme { return library.Scheme }

// Definitions are the OpenAPI definitions of main and, beside them, those of
// CustomResourceDefinitions.
func Definitions(main common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := generated.GetOpenAPIDefinitions(ref)
		maps.Copy(all, main(ref))
		return all
	}
}
