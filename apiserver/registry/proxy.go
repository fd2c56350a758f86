package registry

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// proxyREST passes requests on to a Pod or to a Service's endpoints: pods/NAME/proxy/PATH
// and services/NAME/proxy/PATH. Who may ask is decided before, by their rights to that
// subresource. A request goes to an address of that object and to no other: to none of
// this machine's own, and to none of its link's.
type proxyREST struct {
	new func() runtime.Object
	// path is that of the options.
	path func(options runtime.Object) string
	// locate finds where a name with a port leads.
	locate func(ctx context.Context, name, port string) (netip.AddrPort, error)
}

var _ rest.Connecter = (*proxyREST)(nil)

func (r *proxyREST) New() runtime.Object { return r.new() }

// Destroy leaves the stores to their owners.
func (r *proxyREST) Destroy() {}

// NewConnectOptions implements rest.Connecter. What comes after "proxy" is the path.
func (r *proxyREST) NewConnectOptions() (runtime.Object, bool, string) { return r.new(), true, "path" }

// ConnectMethods implements rest.Connecter.
func (r *proxyREST) ConnectMethods() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
}

// Connect implements rest.Connecter. The name may be SCHEME:NAME:PORT.
func (r *proxyREST) Connect(ctx context.Context, id string, options runtime.Object, responder rest.Responder) (http.Handler, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(id)
	if !valid {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not of the form [http:|https:]NAME[:PORT]", id))
	}
	to, err := r.locate(ctx, name, port)
	if err != nil {
		return nil, err
	}
	if err := proxyable(to.Addr()); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	location := &url.URL{Scheme: "http", Host: to.String(), Path: r.path(options)}
	if scheme == "https" {
		location.Scheme = "https"
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler := proxy.NewUpgradeAwareHandler(location, proxyTransport(), true, false, proxy.NewErrorResponder(responder))
		handler.FlushInterval = 200 * time.Millisecond
		handler.ServeHTTP(w, withoutIdentity(req))
	}), nil
}

// proxyTransport reaches addresses that are allowed, whatever it is told. The certificates
// of pods are nobody's that is known here.
func proxyTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return proxyable(to.Addr())
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 20,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, //nolint:gosec // see above
	}
}

// proxyable returns an error for addresses that aren't another program's: of this machine,
// of its link, or of nobody in particular.
func proxyable(a netip.Addr) error {
	if a = a.Unmap(); !a.IsValid() || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return fmt.Errorf("address %s: nothing is passed on to loopback, link-local and group addresses", a)
	}
	return nil
}

// withoutIdentity keeps from a program what its users show the API server.
func withoutIdentity(req *http.Request) *http.Request {
	out := req.Clone(req.Context())
	for name := range out.Header {
		if name == "Authorization" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			out.Header.Del(name)
		}
	}
	return out
}

// podProxy passes requests on to Pods.
func podProxy(pods *genericregistry.Store) *proxyREST {
	return &proxyREST{
		new:  func() runtime.Object { return &corev1.PodProxyOptions{} },
		path: func(o runtime.Object) string { return cleanPath(o.(*corev1.PodProxyOptions).Path) },
		locate: func(ctx context.Context, name, port string) (netip.AddrPort, error) {
			obj, err := pods.Get(ctx, name, &metav1.GetOptions{})
			if err != nil {
				return netip.AddrPort{}, err
			}
			pod := obj.(*corev1.Pod)
			a, err := netip.ParseAddr(pod.Status.PodIP)
			if err != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
				return netip.AddrPort{}, apierrors.NewServiceUnavailable("pod " + name + " has no address: it doesn't run")
			}
			number, err := podPort(pod, port)
			return netip.AddrPortFrom(a, number), err
		},
	}
}

// podPort finds a port of a Pod: by number, by name, or the first that it declares.
func podPort(pod *corev1.Pod, port string) (uint16, error) {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if port == "" || p.Name == port {
				return uint16(p.ContainerPort), nil
			}
		}
	}
	if port == "" {
		return 80, nil
	}
	return 0, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no port %q", pod.Name, port))
}

// serviceProxy passes requests on to endpoints of Services.
func serviceProxy(services *genericregistry.Store, slicesOf func() (rest.Lister, bool)) *proxyREST {
	return &proxyREST{
		new:  func() runtime.Object { return &corev1.ServiceProxyOptions{} },
		path: func(o runtime.Object) string { return cleanPath(o.(*corev1.ServiceProxyOptions).Path) },
		locate: func(ctx context.Context, name, port string) (netip.AddrPort, error) {
			obj, err := services.Get(ctx, name, &metav1.GetOptions{})
			if err != nil {
				return netip.AddrPort{}, err
			}
			service := obj.(*corev1.Service)
			if service.Spec.Type == corev1.ServiceTypeExternalName {
				return netip.AddrPort{}, apierrors.NewBadRequest("Service " + name + " is a name of somebody else: nothing is passed on to it")
			}
			portName, err := servicePort(service, port)
			if err != nil {
				return netip.AddrPort{}, err
			}
			lister, ok := slicesOf()
			if !ok {
				return netip.AddrPort{}, apierrors.NewServiceUnavailable("EndpointSlices aren't served")
			}
			list, err := lister.List(genericapirequest.WithNamespace(ctx, service.Namespace), &metainternalversion.ListOptions{
				LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name}), ResourceVersion: "0",
			})
			if err != nil {
				return netip.AddrPort{}, err
			}
			ready := readyEndpoints(list, portName)
			if len(ready) == 0 {
				return netip.AddrPort{}, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
			}
			return ready[rand.IntN(len(ready))], nil
		},
	}
}

// servicePort finds the name of a Service's port: by name, by number, or the only one.
func servicePort(service *corev1.Service, port string) (string, error) {
	ports := service.Spec.Ports
	if port == "" && len(ports) == 1 {
		return ports[0].Name, nil
	}
	i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool {
		return port != "" && (p.Name == port || strconv.Itoa(int(p.Port)) == port)
	})
	if i < 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", port, service.Name))
	}
	return ports[i].Name, nil
}

// readyEndpoints are the ready endpoints of a port.
func readyEndpoints(list runtime.Object, port string) (ready []netip.AddrPort) {
	slices, _ := list.(*discoveryv1.EndpointSliceList)
	for i := range slices.Items {
		s := &slices.Items[i]
		for _, p := range s.Ports {
			if p.Port == nil || (p.Name == nil && port != "") || p.Name != nil && *p.Name != port || p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					continue
				}
				for _, text := range e.Addresses[:min(1, len(e.Addresses))] {
					if a, err := netip.ParseAddr(text); err == nil {
						ready = append(ready, netip.AddrPortFrom(a, uint16(*p.Port)))
					}
				}
			}
		}
	}
	return ready
}

// cleanPath is a path without steps out of it, and with the slash at its end. None at all
// stays none: clients are led to the one with a slash.
func cleanPath(p string) string {
	if p == "" {
		return ""
	}
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
