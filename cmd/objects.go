package cmd

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/manifest"
	"github.com/fairway-net/fairway/kube/balance"
)

// objectFlags say where a command of diagnosis reads API objects: in files, or
// from the API with the user's own rights.
type objectFlags struct {
	files      []string
	kubeconfig string
	namespace  string
	sockets    []string

	noAPI   bool     // it doesn't answer, or can't be asked
	answers *answers // of the API; nil for who waits as long as it takes
}

func (f *objectFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVarP(&f.files, "filename", "f", nil, `manifests instead of an API: files, folders, or "-" for standard input`)
	f.addAPI(flags)
}

// addAPI adds the flags of commands that need an API.
func (f *objectFlags) addAPI(flags *pflag.FlagSet) {
	f.answers = &answers{}
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", kubeconfigHelp)
	flags.StringSliceVar(&f.sockets, "agent-socket", nil, "sockets of agents to ask, wildcards allowed; default this machine's own and, with a lab's kubeconfig, those of its nodes")
	flags.StringVarP(&f.namespace, "namespace", "n", corev1.NamespaceDefault, "default namespace of names")
}

// read reads the objects. Kinds that the user may not read are named in the
// report, as long as Services can be read. It takes what agents have in force if the API
// can't be asked.
func (f *objectFlags) read(ctx context.Context) (*explain.Objects, error) {
	o, err := f.readAPI(ctx)
	return f.orInForce(ctx, o, err)
}

// readAPI is the same without the agents.
func (f *objectFlags) readAPI(ctx context.Context) (*explain.Objects, error) {
	if len(f.files) > 0 {
		set, err := manifest.Read(f.files...)
		if err != nil {
			return nil, err
		}
		for _, line := range append(set.Warnings, set.Mistakes...) {
			fmt.Fprintf(os.Stderr, "fairway: %s\n", line)
		}
		o := &explain.Objects{Services: set.Services, Slices: set.Slices, Pods: set.Pods, Nodes: set.Nodes}
		o.NoPolicies = "they are not read from manifests"
		if len(set.Pods) == 0 {
			o.NoPods = "the manifests hold none"
		}
		return o, nil
	}
	client, err := f.reader()
	if err != nil {
		return nil, err
	}
	return readObjects(ctx, client, metav1.NamespaceAll)
}

const kubeconfigHelp = "kubeconfig file; default $KUBECONFIG, this machine's own server, ~/.kube/config, or this machine's credentials as a node"

// client reaches the API with the user's credentials.
func (f *objectFlags) client() (kubernetes.Interface, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// reader is the same for who only reads: in protobuf, which is a third of JSON.
func (f *objectFlags) reader() (kubernetes.Interface, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	if f.answers != nil {
		config = f.answers.impatient(config)
	}
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// config says where the API is, and who the user is.
func (f *objectFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	if own := ownKubeconfig(nil); f.kubeconfig == "" && own != "" {
		rules.ExplicitPath = own
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if joined := joinedKubeconfig(); clientcmd.IsEmptyConfig(err) && joined != "" {
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
