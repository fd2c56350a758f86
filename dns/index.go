package dns

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultTTL is how long clients may keep a record.
const DefaultTTL = 5 * time.Second

// IndexConfig says what an Index answers for.
type IndexConfig struct {
	// Zone is the cluster's domain, such as cluster.local.
	Zone string
	// TTL is that of the records; they change at any time, so it is short.
	TTL time.Duration
	// Servers are the addresses of the DNS Service, which the zone's NS record
	// leads to.
	Servers []netip.Addr
	// NodeName limits the clients that are remembered to those of one node; ""
	// remembers all.
	NodeName string
	// Gated holds new cluster IPs back until Applied says that this node
	// forwards them.
	Gated bool
	// Outside is a zone with the names of load balancer addresses, with the final
	// dot; "" has none.
	Outside string
	// Search are further domains that clients' resolvers append, after the
	// cluster's own.
	Search []string
}

// Index holds the records of a cluster. It is fed one object at a time, keeps
// compact records instead of the objects, and the cost of a change is that of
// the one Service or slice. For concurrent use.
type Index struct {
	config IndexConfig
	zone   string // with the final dot, lower case
	wire   []byte // the zone as it is in packets
	ttl    uint32 // seconds

	mu         sync.RWMutex
	synced     bool
	changes    uint32 // the zone's serial number
	services   map[types.NamespacedName]*service
	owners     map[types.NamespacedName]*service // of slices
	namespaces map[string]int                    // how many Services answer
	addresses  map[netip.Addr]*service           // cluster IPs that answer
	hosts      map[netip.Addr][]host             // headless endpoints with hostnames
	clients    map[netip.Addr]client
	pods       map[types.NamespacedName][]netip.Addr
	pending    []*service // with a next spec, or had one
	clock      uint64     // counts marks
	outside    outsideNames
	gone       machines
}

// service is all that is remembered of a Service and its slices.
type service struct {
	key    types.NamespacedName
	live   *spec // what is answered
	next   *spec // what will be, once it is forwarded
	since  uint64
	slices []*slice
	names  *hostnames // of the endpoints, made when asked for
}

// NewIndex returns an Index without records.
func NewIndex(config IndexConfig) *Index {
	if config.TTL <= 0 {
		config.TTL = DefaultTTL
	}
	zone := strings.ToLower(strings.Trim(config.Zone, ".")) + "."
	var wire []byte
	for label := range strings.SplitSeq(zone, ".") { // the last is the root's, which is empty
		wire = append(append(wire, byte(len(label))), label...)
	}
	return &Index{
		config:     config,
		outside:    newOutsideNames(config.Outside),
		zone:       zone,
		wire:       wire,
		ttl:        uint32(config.TTL / time.Second),
		services:   map[types.NamespacedName]*service{},
		owners:     map[types.NamespacedName]*service{},
		namespaces: map[string]int{},
		addresses:  map[netip.Addr]*service{},
		hosts:      map[netip.Addr][]host{},
		clients:    map[netip.Addr]client{},
		pods:       map[types.NamespacedName][]netip.Addr{},
	}
}

// Synced tells that all Services and slices there are have been told. Before,
// questions about the zone have no answer yet, which is not "no such name".
func (x *Index) Synced() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.synced = true
}

// Ready reports whether the index answers.
func (x *Index) Ready() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.synced
}

// SetService adds or replaces a Service.
func (x *Index) SetService(s *corev1.Service) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	next := newSpec(s)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.outside.set(s) {
		x.changes++
	}
	if next == nil {
		x.withdraw(key)
		return
	}
	svc := x.service(key)
	if x.config.Gated && next.kind == clusterIP {
		x.hold(svc, next)
		return
	}
	svc.next = nil
	x.publish(svc, next)
}

// DeleteService removes a Service; its slices are remembered.
func (x *Index) DeleteService(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.outside.remove(key) {
		x.changes++
	}
	x.withdraw(key)
}

// withdraw removes the cluster's names of a Service. The caller holds the lock.
func (x *Index) withdraw(key types.NamespacedName) {
	if svc := x.services[key]; svc != nil {
		svc.next = nil
		x.publish(svc, nil)
		x.forget(svc)
	}
}

// SetSlice adds or replaces an EndpointSlice. Its Service may come later.
func (x *Index) SetSlice(s *discoveryv1.EndpointSlice) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	owner := s.Labels[discoveryv1.LabelServiceName]
	if owner == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		x.DeleteSlice(key)
		return
	}
	record := newSlice(s, x.config.NodeName)
	x.mu.Lock()
	defer x.mu.Unlock()
	svc := x.service(types.NamespacedName{Namespace: s.Namespace, Name: owner})
	if was := x.owners[key]; was != nil && was != svc {
		x.replaceSlice(was, key.Name, nil)
		x.forget(was)
	}
	x.owners[key] = svc
	x.replaceSlice(svc, key.Name, record)
}

// DeleteSlice removes an EndpointSlice.
func (x *Index) DeleteSlice(key types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if svc := x.owners[key]; svc != nil {
		delete(x.owners, key)
		x.replaceSlice(svc, key.Name, nil)
		x.forget(svc)
	}
}

// HasSlice reports whether there is such a slice.
func (x *Index) HasSlice(key types.NamespacedName) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.owners[key] != nil
}

func (x *Index) service(key types.NamespacedName) *service {
	svc := x.services[key]
	if svc == nil {
		svc = &service{key: key, names: &hostnames{}}
		x.services[key] = svc
	}
	return svc
}

// forget drops a Service of which nothing is known any more.
func (x *Index) forget(svc *service) {
	if svc.live == nil && svc.next == nil && len(svc.slices) == 0 {
		delete(x.services, svc.key)
	}
}

// publish replaces what is answered for a Service; nil is nothing.
func (x *Index) publish(svc *service, next *spec) {
	x.changes++
	x.withdrawHosts(svc)
	if old := svc.live; old != nil {
		for _, a := range old.addresses {
			if x.addresses[a] == svc {
				delete(x.addresses, a)
			}
		}
		if x.namespaces[svc.key.Namespace]--; x.namespaces[svc.key.Namespace] == 0 {
			delete(x.namespaces, svc.key.Namespace)
		}
	}
	svc.live, svc.names = next, &hostnames{}
	if next != nil {
		x.namespaces[svc.key.Namespace]++
		for _, a := range next.addresses {
			x.addresses[a] = svc
		}
	}
	x.publishHosts(svc)
}
