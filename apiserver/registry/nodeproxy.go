package registry

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/proxy"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// AgentPortAnnotation, on a Node that its agent registered, is the port at which the
// agent answers API servers.
const AgentPortAnnotation = "fairway.dev/agent-port"

// NodeAgents is how the agents of nodes are reached. What is nil isn't there.
type NodeAgents struct {
	// Socket is the path of the socket of a node's agent on this machine; "" for a node
	// that isn't here.
	Socket func(node string) string
	// TLS shows a node's agent that this is an API server, and takes only that node's
	// certificate for an answer.
	TLS func(node string) *tls.Config
}

// nodeProxyREST passes requests on to a node's agent: nodes/NAME/proxy/PATH. Who may
// ask is decided before, by their rights to "nodes/proxy".
type nodeProxyREST struct {
	store  *genericregistry.Store
	agents NodeAgents
}

var _ rest.Connecter = (*nodeProxyREST)(nil)

func (r *nodeProxyREST) New() runtime.Object { return &corev1.NodeProxyOptions{} }

// Destroy leaves the store to its owner.
func (r *nodeProxyREST) Destroy() {}

// NewConnectOptions implements rest.Connecter. What comes after "proxy" is the path.
func (r *nodeProxyREST) NewConnectOptions() (runtime.Object, bool, string) {
	return &corev1.NodeProxyOptions{}, true, "path"
}

// ConnectMethods implements rest.Connecter.
func (r *nodeProxyREST) ConnectMethods() []string { return []string{http.MethodGet, http.MethodPost} }

// Connect implements rest.Connecter.
func (r *nodeProxyREST) Connect(ctx context.Context, name string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	obj, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	to, transport, err := r.way(obj.(*corev1.Node))
	if err != nil {
		return nil, err
	}
	to.Path = "/" + strings.TrimPrefix(options.(*corev1.NodeProxyOptions).Path, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		to.RawQuery = req.URL.RawQuery
		handler := proxy.NewUpgradeAwareHandler(to, transport, false, false, proxy.NewErrorResponder(responder))
		handler.FlushInterval = -1 // connections are told of as they come
		handler.ServeHTTP(w, withoutCredentials(req))
	}), nil
}

// withoutCredentials keeps from a node what its users show the API server.
func withoutCredentials(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	for name := range out.Header {
		if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			out.Header.Del(name)
		}
	}
	return out
}

// way is how a node's agent is reached.
func (r *nodeProxyREST) way(node *corev1.Node) (*url.URL, http.RoundTripper, error) {
	if r.agents.Socket != nil {
		if path := r.agents.Socket(node.Name); path != "" {
			return &url.URL{Scheme: "http", Host: "agent"}, &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", path)
				},
			}, nil
		}
	}
	port, err := strconv.ParseUint(node.Annotations[AgentPortAnnotation], 10, 16)
	address := addressOf(node)
	if r.agents.TLS == nil || err != nil || port == 0 || address == "" {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("the agent of node %s can't be asked from here: its Node doesn't say at which port it answers API servers (annotation %s)", node.Name, AgentPortAnnotation))
	}
	if a, err := netip.ParseAddr(address); err != nil || proxyable(a) != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("node %s says that it is at %s: nothing is passed on to loopback, link-local and group addresses", node.Name, address))
	}
	host := net.JoinHostPort(address, strconv.FormatUint(port, 10))
	return &url.URL{Scheme: "https", Host: host}, &http.Transport{DisableKeepAlives: true, TLSClientConfig: r.agents.TLS(node.Name)}, nil
}

// addressOf is where a node is reached.
func addressOf(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
