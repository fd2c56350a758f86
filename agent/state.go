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
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/endpoint/healthports"
	"github.com/fairway-net/fairway/kube/latency"
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
	changes  *latency.Changes     // counts what is told and what is in force
	missing  map[string]bool      // what hasn't been complete yet
	gone     []string             // machines, as their peers agree
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
		compiler: compile.New(config), config: config, changes: latency.New(metrics.ProxySystem),
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
	s.changes.Taken()
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
		s.changes.Service(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
		if s.names != nil {
			s.names.SetService(svc)
		}
	})
}

func (s *state) deleteService(n types.NamespacedName) {
	s.update(func(c *compile.Compiler) {
		c.DeleteService(n.Namespace, n.Name)
		s.changes.Service(n)
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
		s.changes.Slice(slice)
		if s.names != nil {
			s.names.SetSlice(slice)
		}
	})
}

func (s *state) deleteSlice(n types.NamespacedName) {
	s.update(func(c *compile.Compiler) {
		c.DeleteSlice(n.Namespace, n.Name)
		s.changes.SliceGone(n)
		if s.names != nil {
			s.names.DeleteSlice(n)
		}
	})
}

// setGone takes in which machines are gone, by name and with their addresses, and reports whether
// that is new.
func (s *state) setGone(nodes []string, machines []compile.Machine) (isNew bool) {
	s.mu.Lock()
	isNew = !slices.Equal(nodes, s.gone)
	s.gone = nodes
	s.mu.Unlock()
	if isNew {
		s.update(func(c *compile.Compiler) {
			c.SetGone(machines)
			if s.names != nil {
				var addresses []netip.Addr
				for _, m := range machines {
					addresses = append(addresses, m.Addresses...)
				}
				s.names.SetGone(nodes, addresses)
			}
		})
	}
	return isNew
}

// healthChecks is what the health-check ports of Services answer, by port, if
// that has changed since the last call.
func (s *state) healthChecks() (checks map[uint16]healthports.Answer, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.compiler.HealthChanges()) == 0 {
		return nil, false
	}
	checks = map[uint16]healthports.Answer{}
	for _, h := range s.compiler.HealthChecks() {
		checks[h.Port] = healthports.Answer{Service: h.Service.String(), Local: h.Local}
	}
	return checks, true
}
