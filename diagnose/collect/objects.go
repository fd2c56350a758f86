package collect

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/diagnose/bundle"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/manifest"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/credentials"
)

// Source is where diagnosis reads API objects and which agents it asks: objects from
// manifests, or from the API with the user's own rights. The zero Source is the API that
// kubectl would ask, and this machine's agent or those of the lab in use.
type Source struct {
	Files      []string // manifests in place of an API: files, folders, or "-" for standard input
	Kubeconfig string   // "" for the first of KubeconfigHelp's that is there
	Namespace  string   // of names that say none
	Sockets    []string // of agents to ask, in place of all that are found
	// Joined are the objects of Files together with those of a cluster; nil for those of Files alone.
	Joined *explain.Objects
	// Say is told what is odd about manifests; nil for nobody.
	Say func(string)
	// Answers has agents asked instead of an API server that hangs; nil waits for it.
	Answers *Answers

	noAPI  bool             // it doesn't answer, or can't be asked
	bundle *bundle.Contents // that is among Files
}

func (s *Source) say(line string) {
	if s.Say != nil {
		s.Say(line)
	}
}

// Read reads the objects. Kinds that the user may not read are named in the
// report, as long as Services can be read. It takes what agents have in force if the API
// can't be asked.
func (s *Source) Read(ctx context.Context) (*explain.Objects, error) {
	o, err := s.readAPI(ctx)
	return s.orInForce(ctx, o, err)
}

// readAPI is the same without the agents.
func (s *Source) readAPI(ctx context.Context) (*explain.Objects, error) {
	if s.Joined != nil {
		o := *s.Joined // callers take parts out
		return &o, nil
	}
	if err := s.readBundle(); err != nil {
		return nil, err
	}
	if s.bundle != nil {
		o := *s.bundle.Objects // callers take parts out
		return &o, nil
	}
	if len(s.Files) > 0 {
		set, err := manifest.Read(s.Files...)
		if err != nil {
			return nil, err
		}
		for _, line := range append(set.Warnings, set.Mistakes...) {
			s.say(line)
		}
		o := &explain.Objects{Services: set.Services, Slices: set.Slices, Pods: set.Pods, Nodes: set.Nodes}
		o.NoPolicies = "they are not read from manifests"
		if len(set.Pods) == 0 {
			o.NoPods = "the manifests hold none"
		}
		return o, nil
	}
	client, err := s.reader()
	if err != nil {
		return nil, err
	}
	return readObjects(ctx, client, metav1.NamespaceAll)
}

// KubeconfigHelp is the help of a --kubeconfig that may be left out.
const KubeconfigHelp = "kubeconfig file; default $KUBECONFIG, this machine's own server, ~/.kube/config, or this machine's credentials as a node"

// Client reaches the API with the user's credentials.
func (s *Source) Client() (kubernetes.Interface, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// reader is the same for who only reads: in protobuf, which is a third of JSON.
func (s *Source) reader() (kubernetes.Interface, error) {
	config, err := s.Config()
	if err != nil {
		return nil, err
	}
	config = s.WithFirstAnswerTimeout(config)
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// Config says where the API is, and who the user is.
func (s *Source) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.Kubeconfig
	if own := credentials.OfServer(); s.Kubeconfig == "" && own != "" {
		rules.ExplicitPath = own
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if joined := credentials.OfNode(); clientcmd.IsEmptyConfig(err) && joined != "" {
		rules.ExplicitPath = joined
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	if err != nil {
		return nil, errConfig{err}
	}
	config.QPS, config.Burst = 50, 100
	if rules.ExplicitPath == "" {
		return config, nil
	}
	return config, balance.AttachFor(config, rules.ExplicitPath)
}

// readObjects reads the objects of a namespace, or of all.
func readObjects(ctx context.Context, client kubernetes.Interface, namespace string) (*explain.Objects, error) {
	o := &explain.Objects{}
	services, err := client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	o.Services = pointers(services.Items)
	slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		o.NoSlices = err.Error()
	case err != nil:
		return nil, fmt.Errorf("list EndpointSlices: %w", err)
	default:
		o.Slices = pointers[discoveryv1.EndpointSlice](slices.Items)
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	if err == nil {
		o.Nodes = pointers(nodes.Items)
	} else {
		o.NoNodes = err.Error()
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		o.NoPods = err.Error()
	case err != nil:
		return nil, fmt.Errorf("list Pods: %w", err)
	default:
		o.Pods = pointers(pods.Items)
	}
	policies, err := client.NetworkingV1().NetworkPolicies(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err): // an API that has none
	case apierrors.IsForbidden(err):
		o.NoPolicies = err.Error()
	case err != nil:
		return nil, fmt.Errorf("list NetworkPolicies: %w", err)
	default:
		o.Policies = pointers(policies.Items)
	}
	return o, nil
}

// pointers are pointers to the items of a list.
func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}
