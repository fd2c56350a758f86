package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	streams "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Kubelet is where the API of what runs Pods is served: the path of a unix
// socket. It is asked for Pods' logs and for what runs in them, as Kubernetes'
// API server asks a node's kubelet. "" says that nothing runs Pods here.
type Kubelet string

// podStreams are the subresources of Pods that their kubelet answers.
func podStreams(pods *genericregistry.Store, kubelet Kubelet) Resources {
	stream := func(verb string, new func() runtime.Object, wrap func(*url.URL, *http.Transport, http.Handler) http.Handler, methods ...string) *podStreamREST {
		return &podStreamREST{store: pods, kubelet: kubelet, verb: verb, new: new, wrap: wrap, methods: methods}
	}
	return Resources{
		"pods/log":         stream("containerLogs", func() runtime.Object { return &corev1.Pod{} }, nil, http.MethodGet),
		"pods/exec":        stream("exec", func() runtime.Object { return &corev1.PodExecOptions{} }, translate, http.MethodGet, http.MethodPost),
		"pods/attach":      stream("attach", func() runtime.Object { return &corev1.PodAttachOptions{} }, translate, http.MethodGet, http.MethodPost),
		"pods/portforward": stream("portForward", func() runtime.Object { return &corev1.PodPortForwardOptions{} }, tunnel, http.MethodGet, http.MethodPost),
	}
}

// translate speaks WebSockets to clients that want to (KEP-4006), and SPDY to the
// kubelet.
func translate(location *url.URL, transport *http.Transport, spdy http.Handler) http.Handler {
	query := location.Query()
	translator := streams.NewStreamTranslatorHandler(location, transport, 0, streams.Options{
		Stdin: query.Get("input") == "1", Stdout: query.Get("output") == "1", Stderr: query.Get("error") == "1", Tty: query.Get("tty") == "1",
	})
	return streams.NewTranslatingHandler(spdy, translator, wsstream.IsWebSocketRequestWithStreamCloseProtocol)
}

// tunnel carries SPDY inside WebSockets for clients that want to (KEP-4006).
func tunnel(_ *url.URL, _ *http.Transport, spdy http.Handler) http.Handler {
	return streams.NewTranslatingHandler(spdy, streams.NewTunnelingHandler(spdy), wsstream.IsWebSocketRequestWithTunnelingProtocol)
}

// podStreamREST passes requests about a Pod on to its kubelet.
type podStreamREST struct {
	store   *genericregistry.Store
	kubelet Kubelet
	verb    string // in the kubelet's API
	new     func() runtime.Object
	wrap    func(*url.URL, *http.Transport, http.Handler) http.Handler // nil if nothing is upgraded
	methods []string
}

var _ rest.Connecter = (*podStreamREST)(nil)

func (r *podStreamREST) New() runtime.Object { return r.new() }

// Destroy leaves the store to its owner.
func (r *podStreamREST) Destroy() {}

// NewConnectOptions implements rest.Connecter. Options are read from the request.
func (r *podStreamREST) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// ConnectMethods implements rest.Connecter.
func (r *podStreamREST) ConnectMethods() []string { return r.methods }

// Connect implements rest.Connecter.
func (r *podStreamREST) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	obj, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := obj.(*corev1.Pod)
	switch {
	case r.kubelet == "":
		return nil, apierrors.NewBadRequest("this server runs no pods, so there is nothing to read from or to run in pod " + name + ": the server of a `fairway lab` does")
	case pod.Spec.NodeName == "":
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", name))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		location, err := r.location(pod, req.URL.Query())
		if err != nil {
			responder.Error(err)
			return
		}
		r.handler(location, responder).ServeHTTP(w, req)
	}), nil
}

func (r *podStreamREST) handler(location *url.URL, responder rest.Responder) http.Handler {
	transport := &http.Transport{
		DisableKeepAlives: true, // each stream has a connection, and ends with it
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", string(r.kubelet))
		},
	}
	handler := proxy.NewUpgradeAwareHandler(location, transport, false, r.wrap != nil, proxy.NewErrorResponder(responder))
	handler.FlushInterval = -1 // logs that are followed come line by line
	if r.wrap == nil {
		return handler
	}
	return r.wrap(location, transport, handler)
}

// renamed are options of exec and attach, by their names in the kubelet's API.
var renamed = map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}

// location is where the kubelet answers a request with these options.
func (r *podStreamREST) location(pod *corev1.Pod, options url.Values) (*url.URL, error) {
	path := []string{"", r.verb, pod.Namespace, pod.Name}
	query := url.Values{}
	if r.verb == "portForward" {
		query = options
	} else {
		container, err := containerOf(pod, options.Get("container"))
		if err != nil {
			return nil, err
		}
		path = append(path, container)
		for name, values := range options {
			if to, ok := renamed[name]; !ok {
				query[name] = values
			} else if values[0] == "true" || values[0] == "1" {
				query.Set(to, "1")
			}
		}
		query.Del("container")
	}
	return &url.URL{Scheme: "http", Host: "kubelet", Path: strings.Join(path, "/"), RawQuery: query.Encode()}, nil
}

// defaultContainer is the annotation that names the container that people mean.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// containerOf finds the container that a request means: the only one, if it names
// none.
func containerOf(pod *corev1.Pod, asked string) (string, error) {
	var names []string
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		names = append(names, c.Name)
	}
	if asked == "" {
		asked = pod.Annotations[defaultContainer]
	}
	switch {
	case asked == "" && len(pod.Spec.Containers) == 1:
		return pod.Spec.Containers[0].Name, nil
	case asked == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, names))
	case !slices.Contains(names, asked):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s, choose one of: %v", asked, pod.Name, names))
	}
	return asked, nil
}
