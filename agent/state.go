package agent

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/model"
)

// state is what the watches have told so far: a compiler behind a lock, and
// what is still missing before its tables may be trusted.
type state struct {
	wake    chan struct{} // filled when there may be a new table
	changed func()        // told of every change

	mu       sync.Mutex
	compiler *compile.Compiler
	config   compile.Config
	names    *dns.Index // nil where no DNS is served
	node     compile.Node
	primary  netip.Addr           // one that is configured; invalid if none is
	own      types.NamespacedName // a slice that says nothing new to this node; see setServed
	changes  *changes             // counts what is told and what is in force
	missing  map[string]bool      // what hasn't been complete yet
	// The ranges of cluster IPs: as configured, and by ServiceCIDR object.
	configuredCIDRs []netip.Prefix
	serviceCIDRs    map[string][]netip.Prefix
}

// The parts of the state that must be complete before a table is one.
const (
	partServices  = "services"
	partSlices    = "endpointslices"
	partNode      = "node"
	partAddresses = "addresses"
	// The first table waits for this one for a moment only: see watchServiceCIDRs.
	partServiceCIDRs = "servicecidrs"
)

func newState(config compile.Config, nodeName string, changed func()) *state {
	return &state{
		wake: make(chan struct{}, 1), changed: changed,
		compiler: compile.New(config), config: config, changes: newChanges(),
		node:            compile.Node{Name: nodeName},
		configuredCIDRs: config.ServiceCIDRs, serviceCIDRs: map[string][]netip.Prefix{},
		missing: map[string]bool{partServices: true, partSlices: true, partNode: true, partAddresses: true, partServiceCIDRs: true},
	}
}

// incomplete are the parts that are missing for the first table, sorted.
func (s *state) incomplete() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.missing))
}

// update changes the compiler's input and wakes the loop.
func (s *state) update(change func(*compile.Compiler)) {
	s.mu.Lock()
	change(s.compiler)
	ready := len(s.missing) == 0
	s.mu.Unlock()
	if ready {
		s.changed()
		signal(s.wake)
	}
}

// withCompiler lets somebody ask the compiler; see compile.Compiler.Candidates.
func (s *state) withCompiler(ask func(*compile.Compiler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ask(s.compiler)
}

// complete notes that a part is known in full.
func (s *state) complete(part string) {
	s.mu.Lock()
	was := len(s.missing)
	delete(s.missing, part)
	ready := was > 0 && len(s.missing) == 0
	s.mu.Unlock()
	if ready {
		s.changed()
		signal(s.wake)
	}
}

// table is the latest table with the problems that are new in it; nil before
// everything is complete.
func (s *state) table() (*model.Table, []compile.Problem, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.missing) > 0 {
		return nil, nil, 0
	}
	var mark uint64 // of what names are in the table
	if s.names != nil {
		mark = s.names.Mark()
	}
	s.changes.taken()
	table := s.compiler.Table()
	return table, s.compiler.NewProblems(), mark
}

// setServed tells what addresses a server on this node answers at, and by which
// slice other nodes know it. This node is to forward to others alone.
func (s *state) setServed(addrs []netip.Addr, own types.NamespacedName) {
	s.update(func(c *compile.Compiler) {
		s.config.Served, s.own = addrs, own
		c.SetConfig(s.config)
	})
}

func (s *state) setService(svc *corev1.Service) {
	s.update(func(c *compile.Compiler) {
		c.SetService(svc)
		s.changes.service(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
		if s.names != nil {
			s.names.SetService(svc)
		}
	})
}

func (s *state) deleteService(n types.NamespacedName) {
	s.update(func(c *compile.Compiler) {
		c.DeleteService(n.Namespace, n.Name)
		s.changes.service(n)
		if s.names != nil {
			s.names.DeleteService(n)
		}
	})
}

func (s *state) setSlice(slice *discoveryv1.EndpointSlice) {
	s.update(func(c *compile.Compiler) {
		if s.own != (types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}) {
			c.SetSlice(slice)
		}
		s.changes.slice(slice)
		if s.names != nil {
			s.names.SetSlice(slice)
		}
	})
}

func (s *state) deleteSlice(n types.NamespacedName) {
	s.update(func(c *compile.Compiler) {
		c.DeleteSlice(n.Namespace, n.Name)
		s.changes.sliceGone(n)
		if s.names != nil {
			s.names.DeleteSlice(n)
		}
	})
}

// setNode takes in what the Node object says; nil if there is none (yet): then
// the node has no zone, and its addresses are those of the machine alone.
func (s *state) setNode(node *corev1.Node) {
	s.update(func(c *compile.Compiler) {
		next := compile.Node{Name: s.node.Name, Addresses: s.node.Addresses}
		if node != nil {
			next.Zone = node.Labels[corev1.LabelTopologyZone]
			next.Primary = primaryOf(node)
			next.PodCIDRs = podCIDRs(node)
		}
		if len(next.Primary) == 0 {
			next.Primary = primaryAddresses(next.Addresses)
		}
		s.replaceNode(c, next)
	})
	s.complete(partNode)
}

// setAddresses takes in the addresses that this machine's interfaces have.
func (s *state) setAddresses(addresses []netip.Addr) {
	s.update(func(c *compile.Compiler) {
		next := s.node
		next.Addresses = addresses
		if len(next.Primary) == 0 {
			next.Primary = primaryAddresses(addresses)
		}
		s.replaceNode(c, next)
	})
	s.complete(partAddresses)
}

// replaceNode compiles all Services anew, so it does nothing for the many
// updates of a Node (heartbeats, images) that say nothing new.
func (s *state) replaceNode(c *compile.Compiler, next compile.Node) {
	if s.primary.IsValid() {
		next.Primary = slices.DeleteFunc(slices.Clone(next.Primary), func(a netip.Addr) bool { return a.Is4() == s.primary.Is4() })
		next.Primary = append(next.Primary, s.primary)
	}
	same := next.Name == s.node.Name && next.Zone == s.node.Zone && slices.Equal(next.Addresses, s.node.Addresses) &&
		slices.Equal(next.Primary, s.node.Primary) && slices.Equal(next.PodCIDRs, s.node.PodCIDRs)
	if !same {
		s.node = next
		c.SetNode(next)
	}
}

// primaryOf are the first InternalIPs of each family, else the first
// ExternalIPs, as kube-proxy takes them.
func primaryOf(node *corev1.Node) []netip.Addr {
	var primary []netip.Addr
	has := map[bool]bool{} // by family
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil || has[ip.Is6()] {
				continue
			}
			has[ip.Is6()] = true
			primary = append(primary, ip.Unmap())
		}
	}
	return primary
}

func podCIDRs(node *corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}

// healthChecks is what the health-check ports of Services answer, by port, if
// that has changed since the last call.
func (s *state) healthChecks() (checks map[uint16]serviceEndpoints, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.compiler.HealthChanges()) == 0 {
		return nil, false
	}
	checks = map[uint16]serviceEndpoints{}
	for _, h := range s.compiler.HealthChecks() {
		checks[h.Port] = serviceEndpoints{Service: h.Service.String(), Local: h.Local}
	}
	return checks, true
}
