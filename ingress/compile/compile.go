// Package compile turns Gateway API objects and Ingresses into a
// [model.Table] and into what their authors are told: conditions and counts.
// All meaning is decided here. It is pure: no clock, no I/O, and the same
// objects give the same output in whatever order they come.
//
//	compile.go    what goes in and what comes out
//	classes.go    GatewayClasses
//	gateways.go   Gateways and ListenerSets to listeners; conflicts
//	listeners.go  one listener: protocol, kinds, certificates
//	finish.go     statuses of Gateways and ListenerSets
//	attach.go     which routes belong to which listeners
//	httproute.go  HTTPRoutes; grpcroute.go, streams.go: the other kinds
//	filters.go    what rules change
//	backends.go   references to Services, and pools
//	session.go    clients that stay with an endpoint; eject.go, endpoints that fail
//	policies.go   BackendTLSPolicies
//	grants.go     ReferenceGrants
//	secrets.go    certificates and authorities
//	annotations.go  annotations of Ingresses; annotationtable.go, the table of them;
//	              annotationreaders.go, how values are read; annotationpage.go, its page
//	auth.go       who says who is let in, and who answers in the place of others
//	canary.go     Ingresses that get a part of others' requests
//	acme.go       certificates that are to be obtained, and what shows that we may
//	balancer.go   Services as Kubernetes' former service-loadbalancer served them
//	lacks.go      what an engine can't do
//	ingress.go    Ingresses: their listeners
//	ingresshosts.go  what holds for their hosts (see package host), and the rules of each
//	ingresspaths.go  their paths, and other names of hosts
//	clients.go    which clients' certificates are asked for
//	ingressupdate.go  what a change of Ingresses costs
//	unserved.go   whose class nobody has
//	update.go     what a change of routes, Services and endpoints costs
//	references.go who depends on what
package compile

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/fairway-net/fairway/ingress/model"
)

// Controller is the name by which GatewayClasses choose Fairway.
const Controller gatewayv1.GatewayController = "fairway.dev/gateway"

// IngressGateway stands for the Gateway that all Ingresses share.
var IngressGateway = types.NamespacedName{Namespace: "kube-system", Name: "ingress"}

// IngressController is the name by which IngressClasses choose Fairway.
const IngressController = "fairway.dev/ingress"

// ServiceName is the name of the Service that a Gateway has for its traffic.
func ServiceName(gateway string) string {
	const suffix = "-fairway"
	if name := gateway + suffix; len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(gateway))
	// Gateways may have names that Services may not: with dots, or a digit first.
	name := strings.ReplaceAll(gateway, ".", "-")
	if name[0] >= '0' && name[0] <= '9' {
		name = "gw-" + name
	}
	return strings.TrimRight(name[:min(len(name), 45)], "-") + "-" + hex.EncodeToString(sum[:4]) + suffix
}

// The ports at which engines listen, one for each port of each Gateway: out of the way
// of node ports and of what the kernel gives to clients.
const FirstPort, LastPort = 20000, 29999

// Objects are what there is to compile.
type Objects struct {
	Classes            []*gatewayv1.GatewayClass
	Gateways           []*gatewayv1.Gateway
	ListenerSets       []*gatewayv1.ListenerSet
	HTTPRoutes         []*gatewayv1.HTTPRoute
	GRPCRoutes         []*gatewayv1.GRPCRoute
	TLSRoutes          []*gatewayv1.TLSRoute
	TCPRoutes          []*gatewayv1.TCPRoute
	UDPRoutes          []*gatewayv1.UDPRoute
	BackendTLSPolicies []*gatewayv1.BackendTLSPolicy
	Grants             []*gatewayv1.ReferenceGrant
	IngressClasses     []*networkingv1.IngressClass
	Ingresses          []*networkingv1.Ingress

	Namespaces map[string]*corev1.Namespace
	Services   map[types.NamespacedName]*corev1.Service
	Secrets    map[types.NamespacedName]*corev1.Secret
	ConfigMaps map[types.NamespacedName]*corev1.ConfigMap
}

// Options are what else a table depends on. The zero value compiles statuses.
type Options struct {
	// Bind says where an engine listens for a Gateway's port; nil, or an address
	// that isn't valid, leaves the socket without one.
	Bind func(gateway types.NamespacedName, port uint16) netip.AddrPort
	// Endpoints lists who takes requests for a Service's port.
	Endpoints func(service types.NamespacedName, port *corev1.ServicePort) []model.Endpoint
	// Certificates, if not nil, keeps what was read from Secrets, so that it is
	// read once, and the last good one of each.
	Certificates *Certificates
	// Only, if not nil, says whose listeners are in the table; IngressGateway stands for
	// those of Ingresses. Routes to others are left out.
	Only func(gateway types.NamespacedName) bool
	// Files, if not nil, lists the certificates for a hostname that are in files of
	// the engine's machine, the best first.
	Files func(hostname string) []*tls.Certificate
	// Lacks, if not nil, is what the engine can't do.
	Lacks *Lacks
	// TableOnly leaves statuses out, which take as much memory as the table.
	TableOnly bool
	// Challenges is the ConfigMap with what a certificate authority may look for
	// (ACME); none if it has no name.
	Challenges types.NamespacedName
}

// Output is what follows from objects.
type Output struct {
	Table        *model.Table
	Streams      []Stream
	Classes      map[string][]metav1.Condition
	Gateways     map[types.NamespacedName]*GatewayResult
	ListenerSets map[types.NamespacedName]*gatewayv1.ListenerSetStatus
	Routes       map[RouteKey][]gatewayv1.RouteParentStatus
	Policies     map[types.NamespacedName][]gatewayv1.PolicyAncestorStatus
	// Ingresses are those that are served. The ports that they need are those of
	// the Gateway IngressGateway.
	Ingresses map[types.NamespacedName]bool
	Problems  []Problem
	// Secrets and ConfigMaps are those that were looked for, whether they are there
	// or not. Nothing depends on others.
	Secrets, ConfigMaps map[types.NamespacedName]struct{}
	// Wanted are the certificates that are to be obtained.
	Wanted []Wanted

	compiler *compiler
	sources  map[string]source                 // of pools, by name
	pools    map[types.NamespacedName][]string // names, by Service
}

// GatewayResult is what a Gateway's author is told and what the Gateway needs.
type GatewayResult struct {
	// Status has no addresses, and Programmed is as if they were there.
	Status gatewayv1.GatewayStatus
	// Ports that clients connect to: sockets of the engine, and streams.
	Ports []Port
}

// Port is one that a Gateway's Service must have.
type Port struct {
	Number   uint16
	Protocol corev1.Protocol
	Stream   bool // carried by the data planes, not by the engine
}

// RouteKey names a route.
type RouteKey struct {
	Kind string
	types.NamespacedName
}

// Stream is a TCP or UDP port of a Gateway, which the data planes carry to the
// endpoints of Services.
type Stream struct {
	Gateway  types.NamespacedName
	Port     uint16
	Protocol corev1.Protocol
	Backends []StreamBackend
}

// StreamBackend is a Service's port and its share of connections.
type StreamBackend struct {
	Service types.NamespacedName
	Port    *corev1.ServicePort
	Weight  int
}

// Problem is something that an object says and that is not done.
type Problem struct {
	Kind    string // of the object
	Object  types.NamespacedName
	Reason  string
	Message string
}

// The reasons of problems, as an Event has them.
const (
	ReasonInvalid  = "InvalidValue"
	ReasonRefused  = "Refused"
	ReasonNotFound = "NotFound"
	ReasonConflict = "Conflict"
	ReasonLacking  = "NotSupported" // by the engine
	// ReasonOtherwise is of annotations that don't have the effect that they had.
	ReasonOtherwise = "OtherwiseThanAsked"
)

// compiler holds what one run works out.
type compiler struct {
	*Objects
	options  Options
	out      *Output
	grants   grants
	policies policies
	gateways map[types.NamespacedName]*gateway
	sets     map[types.NamespacedName]*listenerSet
	sockets  map[string]*socket
	refs     references
	// IngressClasses that ask for HTTP/3.
	http3Classes map[string]bool
	classes      map[string]bool // IngressClasses that are ours
	in           *ingresses      // nil if there are none
	// The routes that Update knows, by name.
	httpRoutes map[types.NamespacedName]*gatewayv1.HTTPRoute
	grpcRoutes map[types.NamespacedName]*gatewayv1.GRPCRoute
}

// Compile turns objects into a table and statuses.
func Compile(objects *Objects, options Options) *Output {
	if options.Certificates == nil {
		options.Certificates = NewCertificates()
	}
	c := &compiler{
		Objects: objects, options: options,
		out: &Output{
			Table:        &model.Table{Pools: map[string]*model.Pool{}},
			Classes:      map[string][]metav1.Condition{},
			Gateways:     map[types.NamespacedName]*GatewayResult{},
			ListenerSets: map[types.NamespacedName]*gatewayv1.ListenerSetStatus{},
			Routes:       map[RouteKey][]gatewayv1.RouteParentStatus{},
			Policies:     map[types.NamespacedName][]gatewayv1.PolicyAncestorStatus{},
			Ingresses:    map[types.NamespacedName]bool{},
			Secrets:      map[types.NamespacedName]struct{}{},
			ConfigMaps:   map[types.NamespacedName]struct{}{},
			sources:      map[string]source{},
			pools:        map[types.NamespacedName][]string{},
		},
		grants:       readGrants(objects.Grants),
		gateways:     map[types.NamespacedName]*gateway{},
		sets:         map[types.NamespacedName]*listenerSet{},
		sockets:      map[string]*socket{},
		refs:         newReferences(),
		http3Classes: map[string]bool{},
	}
	c.out.compiler = c
	c.policies = c.readPolicies()
	c.compileGateways()
	c.compileRoutes()
	c.compileIngresses()
	c.finishGateways()
	c.finishPolicies()
	c.out.Table.Challenges = c.readChallenges()
	c.finishTable()
	c.reportUnserved()
	if options.TableOnly {
		c.httpRoutes, c.grpcRoutes = byName(c.HTTPRoutes), byName(c.GRPCRoutes)
		for _, s := range c.sockets {
			s.model = nil // tables to come have others
		}
	}
	return c.out
}

// finishTable puts the sockets in order.
func (c *compiler) finishTable() {
	for _, s := range c.sockets {
		c.out.Table.Sockets = append(c.out.Table.Sockets, s.finish())
	}
	slices.SortFunc(c.out.Table.Sockets, func(a, b *model.Socket) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.out.Streams, func(a, b Stream) int {
		return cmp.Or(compareNames(a.Gateway, b.Gateway), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
}

func (c *compiler) problem(kind string, object types.NamespacedName, reason, message string) {
	c.out.Problems = append(c.out.Problems, Problem{kind, object, reason, message})
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// byAge returns objects in the order in which they have precedence: the oldest
// first, then by name.
func byAge[T metav1.Object](list []T) []T {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), compareNames(nameOf(a), nameOf(b)))
	})
	return list
}

func byName[T metav1.Object](list []T) map[types.NamespacedName]T {
	out := make(map[types.NamespacedName]T, len(list))
	for _, o := range list {
		out[nameOf(o)] = o
	}
	return out
}

// value is what a pointer leads to, or what holds where it is nil.
func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func condition[T, R ~string](kind T, status bool, reason R, generation int64, message string) metav1.Condition {
	c := metav1.Condition{Type: string(kind), Status: metav1.ConditionFalse, Reason: string(reason), ObservedGeneration: generation, Message: message}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}
