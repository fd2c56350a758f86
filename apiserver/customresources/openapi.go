package customresources

import (
	"maps"
	"net/http"

	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"
)

// documents makes the main server's OpenAPI documents and keeps the schemas of
// custom resources in them. The library's controllers do the work. To make them
// takes a while, in which the server answers and hears of the definitions; requests
// for them wait, and the server is ready when they are there.
type documents struct {
	server       *genericapiserver.GenericAPIServer
	config       *common.Config
	v3Config     *common.OpenAPIV3Config
	v2Controller *openapi.Controller
	v3Controller *openapiv3.Controller

	paths *mux.PathRecorderMux
	made  chan struct{} // closed when paths is complete
}

func newDocuments(server *genericapiserver.GenericAPIServer, config *common.Config, v3Config *common.OpenAPIV3Config, definitions informers.CustomResourceDefinitionInformer) *documents {
	d := &documents{
		server: server, config: config, v3Config: v3Config,
		v2Controller: openapi.NewController(definitions), v3Controller: openapiv3.NewController(definitions),
		paths: mux.NewPathRecorderMux("openapi"), made: make(chan struct{}),
	}
	server.Handler.NonGoRestfulMux.HandlePrefix("/openapi/", d)
	return d
}

// ServeHTTP implements http.Handler.
func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-d.made:
		d.paths.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// start is a post-start hook: all routes are there, and none will be added.
func (d *documents) start(hook genericapiserver.PostStartHookContext) error {
	resources := d.server.Handler.GoRestfulContainer
	v2, static := routes.OpenAPI{Config: d.config}.InstallV2(resources, d.paths)
	v3 := routes.OpenAPI{V3Config: d.v3Config}.InstallV3(resources, d.paths)
	close(d.made)
	go d.v2Controller.Run(static, v2, hook.Done())
	go d.v3Controller.Run(v3, hook.Done())
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
