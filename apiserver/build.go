package apiserver

import (
	"context"
	"fmt"
	"net"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/customresources"
	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/openapi"
	"github.com/fairway-net/fairway/apiserver/rights"
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
	namer := genericopenapi.NewDefinitionNamer(types.External, customresources.Scheme())
	definitions := customresources.Definitions(openapi.GetOpenAPIDefinitions)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIConfig.Info.Title = "Fairway"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIV3Config.Info.Title = "Fairway"
	config.RESTOptionsGetter = s.options
	config.EnableProfiling = false
	config.BuildHandlerChainFunc = s.handlerChain
	// A shutdown waits for nobody's watch.
	config.ShutdownWatchTerminationGracePeriod = drainTimeout
	checkStorage(&config.Config, s.backend, s.config.membership != nil)
	config.ReadyzChecks = append(config.ReadyzChecks, s.secretsReadable)
	if err := s.config.Audit.apply(&config.Config); err != nil {
		return err
	}
	config.LongRunningFunc = isLongRunning
	if err := s.secure(config); err != nil {
		return err
	}
	s.loopback = config.LoopbackClientConfig
	if err := s.recordEvents(ctx); err != nil {
		return err
	}
	if err := s.guard(config); err != nil {
		return err
	}
	if err := s.followServiceCIDRs(ctx, config.SharedInformerFactory.Networking().V1().ServiceCIDRs()); err != nil {
		return err
	}
	if err := s.admit(config); err != nil {
		return err
	}
	delegate, join, err := s.customResources(config)
	if err != nil {
		return err
	}
	if s.generic, err = config.Complete().New("fairway", delegate); err != nil {
		return fmt.Errorf("create API server: %w", err)
	}
	s.generic.ShutdownTimeout = closeTimeout
	if s.savesSnapshots() {
		s.generic.Handler.NonGoRestfulMux.HandleFunc(SnapshotPath, s.serveSnapshot)
	}
	s.serveMembers()
	if err := s.install(types, &config.Config); err != nil {
		return err
	}
	return join(s.generic)
}

// customResources returns the server that serves them, and what makes another, which
// delegates to it, show them.
func (s *Server) customResources(config *genericapiserver.RecommendedConfig) (delegate genericapiserver.DelegationTarget, join func(*genericapiserver.GenericAPIServer) error, err error) {
	if s.config.noCustomResources {
		return genericapiserver.NewEmptyDelegate(), func(*genericapiserver.GenericAPIServer) error { return nil }, nil
	}
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return nil, nil, fmt.Errorf("create loopback client: %w", err)
	}
	custom, err := customresources.New(config, s.options, endpointResolver{client})
	if err != nil {
		return nil, nil, err
	}
	s.custom = custom
	return custom.Delegate(), custom.Join, nil
}

func (s *Server) openAllocator(ctx context.Context, types *scheme.Scheme) error {
	a, err := allocator.New(s.config.ServiceCIDRs, s.config.NodePortRange, types.Codecs.UniversalDeserializer())
	if err != nil {
		return err
	}
	s.reserve(a)
	if err := storage.DespiteElections(ctx, "read which addresses and ports are taken", func(ctx context.Context) error {
		return a.Start(ctx, s.backend.Client.Client)
	}); err != nil {
		return err
	}
	s.allocator = a
	s.options = storage.NewRESTOptions(s.backend, types, map[schema.GroupResource]storage.Claims{{Resource: "services"}: a})
	s.spent = newSpending(eventBudget, writeBudget)
	s.options.OnWrite(s.spent.charge)
	encryption, err := storage.Encryption(EncryptionKeys(s.config.DataDir))
	if err != nil {
		return err
	}
	if s.secretsReadable, err = s.checkSecrets(ctx); err != nil {
		return err
	}
	s.options.Encrypt(schema.GroupResource{Resource: "secrets"}, encryption)
	return nil
}

// secure sets up TLS.
func (s *Server) secure(config *genericapiserver.RecommendedConfig) error {
	serving, err := s.issueServing()
	if err != nil {
		return err
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", s.authorities.Clients.CertPEM)
	if err != nil {
		return fmt.Errorf("load certificate authority: %w", err)
	}
	secure := options.NewSecureServingOptions()
	secure.Listener = s.listener
	secure.BindPort = s.config.Port
	secure.ServerCert.CertKey = serving
	if err := secure.ApplyTo(&config.SecureServing); err != nil {
		return fmt.Errorf("set up TLS: %w", err)
	}
	config.LoopbackClientConfig, err = config.SecureServing.NewLoopbackClientConfig(uuid.NewString(), s.CA())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	config.SecureServing.ClientCA = clientCA
	config.PublicAddress = net.IP(s.config.AdvertiseAddress.AsSlice())
	return nil
}

// guard sets up authentication and authorization, and the informers that they
// and admission read.
func (s *Server) guard(config *genericapiserver.RecommendedConfig) error {
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	config.SharedInformerFactory = informers.NewSharedInformerFactory(client, 0)
	passwords, err := listPeerSecrets(s.LoopbackConfig())
	if err != nil {
		return err
	}
	referred, err := listGatewayReferences(s.LoopbackConfig())
	if err != nil {
		return err
	}
	tokens := &tokenReads{list: s.keptServerTokens}
	s.access, err = newAccess(s.config.DataDir, s.config.TokenFile, identity.NewServerTokens(tokens.find), config.SecureServing.ClientCA, config.SharedInformerFactory,
		&rights.PeerSecrets{List: passwords}, &rights.GatewayReferences{List: referred}, s.outdated)
	if err != nil {
		return err
	}
	config.Authentication.Authenticator = s.access.requests
	config.Authentication.APIAudiences = authenticator.Audiences{identity.Issuer}
	config.Authorization.Authorizer = s.access.authorizer
	config.RuleResolver = rights.Resolver{Roles: s.access.roles}
	return s.beFair(config, client)
}
