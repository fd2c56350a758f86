package apiserver

import (
	"context"
	"fmt"
	"net"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/openapi"
	"github.com/fairway-net/fairway/apiserver/scheme"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// build puts the server together.
func (s *Server) build(ctx context.Context) error {
	types, err := scheme.New()
	if err != nil {
		return err
	}
	if err := s.openAllocator(ctx, types); err != nil {
		return err
	}
	config := genericapiserver.NewRecommendedConfig(types.Codecs)
	config.EffectiveVersion = effectiveVersion{compatibility.DefaultBuildEffectiveVersion()}
	namer := genericopenapi.NewDefinitionNamer(types.External)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "Fairway"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Fairway"
	// Clients are few and trusted; what protects the server is the rate at
	// which etcd commits.
	config.MaxRequestsInFlight = 2000
	config.MaxMutatingRequestsInFlight = 1000
	config.RESTOptionsGetter = s.options
	config.EnableProfiling = false
	config.BuildHandlerChainFunc = handlerChain
	if err := s.secure(config); err != nil {
		return err
	}
	s.loopback = config.LoopbackClientConfig
	if err := s.admit(config); err != nil {
		return err
	}
	if s.generic, err = config.Complete().New("fairway", genericapiserver.NewEmptyDelegate()); err != nil {
		return fmt.Errorf("create API server: %w", err)
	}
	return s.install(types, &config.Config)
}

func (s *Server) openAllocator(ctx context.Context, types *scheme.Scheme) error {
	a, err := allocator.New(s.config.ServiceCIDRs, s.config.NodePortRange, types.Codecs.UniversalDeserializer())
	if err != nil {
		return err
	}
	if err := a.Start(ctx, s.backend.Client.Client); err != nil {
		return err
	}
	s.allocator = a
	s.options = storage.NewRESTOptions(s.backend, types, map[schema.GroupResource]storage.Claims{{Resource: "services"}: a})
	return nil
}

// secure sets up TLS, authentication and authorization.
func (s *Server) secure(config *genericapiserver.RecommendedConfig) error {
	ips, names := s.config.subjectNames(s.allocator.First())
	serving, err := s.authority.Server("fairway-apiserver", ips, names)
	if err != nil {
		return err
	}
	cert, err := dynamiccertificates.NewStaticCertKeyContent("serving-cert", serving.Cert, serving.Key)
	if err != nil {
		return fmt.Errorf("load serving certificate: %w", err)
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", s.authority.CertPEM)
	if err != nil {
		return fmt.Errorf("load certificate authority: %w", err)
	}
	secure := options.NewSecureServingOptions()
	secure.Listener = s.listener
	secure.BindPort = s.config.Port
	secure.ServerCert.GeneratedCert = cert
	if err := secure.ApplyTo(&config.SecureServing); err != nil {
		return fmt.Errorf("set up TLS: %w", err)
	}
	config.LoopbackClientConfig, err = config.SecureServing.NewLoopbackClientConfig(uuid.NewString(), s.authority.CertPEM)
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	config.SecureServing.ClientCA = clientCA
	config.PublicAddress = net.IP(s.config.AdvertiseAddress.AsSlice())
	config.Authentication.Authenticator, err = newAuthenticator(clientCA, s.config.TokenFile)
	config.Authorization.Authorizer = authorizer.AuthorizerFunc(authorize)
	return err
}

// admit sets up admission: nothing is created in a namespace that isn't there
// or is going.
func (s *Server) admit(config *genericapiserver.RecommendedConfig) error {
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	plugin, err := lifecycle.NewLifecycle(sets.New(metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic))
	if err != nil {
		return fmt.Errorf("create namespace admission: %w", err)
	}
	config.SharedInformerFactory = informers.NewSharedInformerFactory(client, 0)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(config.SharedInformerFactory)
	if err := plugin.ValidateInitialization(); err != nil {
		return fmt.Errorf("set up namespace admission: %w", err)
	}
	config.AdmissionControl = admission.NewChainHandler(plugin)
	return nil
}
