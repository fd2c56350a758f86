package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/fairway-net/fairway/apiserver/rights"
)

// neverReviewed are what is asked and not kept. A policy over them could keep
// everybody out.
var neverReviewed = []schema.GroupResource{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
}

// admit sets up admission: nothing is created in a namespace that isn't there
// or is going, machines write nothing but their own, MutatingAdmissionPolicies and
// webhooks change what they are configured to, and what ValidatingAdmissionPolicies
// or validating webhooks deny is refused, and what ResourceQuotas have no room for.
func (s *Server) admit(config *genericapiserver.RecommendedConfig) error {
	client, err := kubernetes.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("create loopback client: %w", err)
	}
	namespaces, err := lifecycle.NewLifecycle(sets.New(metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic))
	if err != nil {
		return fmt.Errorf("create namespace admission: %w", err)
	}
	namespaces.SetExternalKubeClientSet(client)
	namespaces.SetExternalKubeInformerFactory(config.SharedInformerFactory)
	if err := namespaces.ValidateInitialization(); err != nil {
		return fmt.Errorf("set up namespace admission: %w", err)
	}
	changes, policies, err := s.policies(config, client)
	if err != nil {
		return err
	}
	mutation, checks, err := s.webhooks(config, client)
	if err != nil {
		return err
	}
	quotas, err := s.quotas(config, client)
	if err != nil {
		return err
	}
	// Quotas come last: what another plugin refuses isn't counted.
	config.AdmissionControl = admission.NewChainHandler(namespaces, &rights.NodeAdmission{Service: s.access.service, Nodes: s.access.nodes, ServiceRanges: s.allocator.Prefixes, ServesGateways: s.config.ServesGateways}, changes, mutation, policies, checks, quotas)
	return nil
}

// policyPlugin is what both plugins of policies are told.
type policyPlugin interface {
	SetExternalKubeClientSet(client kubernetes.Interface)
	SetExternalKubeInformerFactory(factory informers.SharedInformerFactory)
	SetDynamicClient(client dynamic.Interface)
	SetRESTMapper(mapper meta.RESTMapper)
	SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer)
	SetExcludedAdmissionResources(resources []schema.GroupResource)
	SetDrainedNotification(drained <-chan struct{})
	ValidateInitialization() error
}

// policies are the plugins that execute MutatingAdmissionPolicies and
// ValidatingAdmissionPolicies.
func (s *Server) policies(config *genericapiserver.RecommendedConfig, client kubernetes.Interface) (mutation, checks admission.Interface, err error) {
	dynamicClient, err := dynamic.NewForConfig(dynamic.ConfigFor(s.LoopbackConfig()))
	if err != nil {
		return nil, nil, fmt.Errorf("create loopback client: %w", err)
	}
	mutate, err := mutating.NewPlugin(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("create policy admission: %w", err)
	}
	mutate.SetEnabled(true)
	validate, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, nil, fmt.Errorf("create policy admission: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	for _, plugin := range []policyPlugin{mutate, validate} {
		plugin.SetExternalKubeClientSet(client)
		plugin.SetExternalKubeInformerFactory(config.SharedInformerFactory)
		plugin.SetDynamicClient(dynamicClient)
		plugin.SetRESTMapper(mapper)
		plugin.SetUnconditionalAuthorizer(s.access.authorizer)
		plugin.SetExcludedAdmissionResources(neverReviewed)
		plugin.SetDrainedNotification(config.DrainedNotify())
		if err := plugin.ValidateInitialization(); err != nil {
			return nil, nil, fmt.Errorf("set up policy admission: %w", err)
		}
	}
	return mutate, validate, nil
}
