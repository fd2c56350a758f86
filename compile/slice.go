package compile

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairway-net/fairway/model"
)

// slice is what is remembered of an EndpointSlice.
type slice struct {
	name      string
	ipv6      bool
	ports     []slicePort
	endpoints []endpoint // sorted by address
	problem   string     // what was left out, and why; "" if nothing was
}

type slicePort struct {
	name  string
	proto model.Protocol
	port  uint16
}

// endpoint is one endpoint of a slice: of 48 bytes, since there are a hundred
// thousand. Names are shared among all that have the same.
type endpoint struct {
	addr   [16]byte              // IPv4 as ::ffff:a.b.c.d
	node   unique.Handle[string] // zero if it is not said
	hints  unique.Handle[hints]  // zero if there are none
	target uint64                // hash of the name of the Pod or whatever it is; 0 if it is not said
	weight uint8                 // as the slice's annotation says
	backup bool                  // the same
	state  state
}

// hints are the zones and nodes that an endpoint is meant for, each ended by a
// comma, which no such name contains.
type hints struct{ zones, nodes string }

// state is how far an endpoint can be used; higher is better.
type state uint8

const (
	terminating        state = iota // ending, and answers no more
	unready                         // listed, no more
	serving                         // answers, but takes no new connections
	servingTerminating              // takes new connections if there is none better
	ready                           // takes new connections
)

var targetSeed = maphash.MakeSeed()

func targetHash(name string) uint64 { return maphash.String(targetSeed, name) }

func newSlice(s *discoveryv1.EndpointSlice) *slice {
	r := &slice{name: s.Name, ipv6: s.AddressType == discoveryv1.AddressTypeIPv6}
	weight := uint8(1)
	if text, given := s.Annotations[AnnotationWeight]; given {
		if w, err := parseWeight(text); err == nil {
			weight = w
		} else {
			r.note("annotation " + AnnotationWeight + ": " + err.Error())
		}
	}
	backup := false
	if text, given := s.Annotations[AnnotationBackup]; given {
		var err error
		if backup, err = parseBool(text); err != nil {
			r.note("annotation " + AnnotationBackup + ": " + err.Error())
		}
	}
	for _, p := range s.Ports {
		r.addPort(p)
	}
	r.endpoints = make([]endpoint, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		r.addEndpoint(&s.Endpoints[i], endpoint{weight: weight, backup: backup})
	}
	slices.SortFunc(r.endpoints, func(a, b endpoint) int { return slices.Compare(a.addr[:], b.addr[:]) })
	return r
}

// note keeps the first thing that was wrong with a slice.
func (r *slice) note(what string) {
	if r.problem == "" {
		r.problem = "EndpointSlice " + r.name + ": " + what
	}
}

// addPort adds a port; one without a number means all ports, which a Service
// port has no use for.
func (r *slice) addPort(p discoveryv1.EndpointPort) {
	if p.Port == nil {
		return
	}
	var sp slicePort
	if p.Name != nil {
		sp.name = *p.Name
	}
	proto := corev1.ProtocolTCP
	if p.Protocol != nil {
		proto = *p.Protocol
	}
	var known bool
	if sp.proto, known = protocol(proto); !known || *p.Port < 1 || *p.Port > 65535 {
		r.note("port " + strconv.Quote(sp.name) + " is left out: " + strconv.Itoa(int(*p.Port)) + "/" + string(proto) + " can't be served")
		return
	}
	sp.port = uint16(*p.Port)
	r.ports = append(r.ports, sp)
}

// addEndpoint adds an endpoint by its first address; the API gives the others
// no meaning. What holds of all endpoints of the slice is in ep.
func (r *slice) addEndpoint(e *discoveryv1.Endpoint, ep endpoint) {
	if len(e.Addresses) == 0 {
		return
	}
	a, err := netip.ParseAddr(e.Addresses[0])
	a = a.Unmap()
	switch {
	case err != nil || a.Zone() != "":
		r.note("endpoint " + strconv.Quote(e.Addresses[0]) + " is left out: it is no IP address")
		return
	case a.Is6() != r.ipv6:
		r.note("endpoint " + a.String() + " is left out: it is of another family than the slice")
		return
	case special(a):
		r.note("endpoint " + a.String() + " is left out: it means another machine on every node")
		return
	}
	ep.addr, ep.state = a.As16(), stateOf(e.Conditions)
	if e.NodeName != nil && *e.NodeName != "" {
		ep.node = unique.Make(*e.NodeName)
	}
	if e.TargetRef != nil && e.TargetRef.Name != "" {
		ep.target = targetHash(e.TargetRef.Name)
	}
	if h := hintsOf(e.Hints); h != (hints{}) {
		ep.hints = unique.Make(h)
	}
	r.endpoints = append(r.endpoints, ep)
}

// stateOf reads conditions as the API defines them: ready and serving are true
// unless said otherwise, terminating is false.
func stateOf(c discoveryv1.EndpointConditions) state {
	isServing := c.Serving == nil || *c.Serving
	isTerminating := c.Terminating != nil && *c.Terminating
	switch {
	case c.Ready == nil || *c.Ready:
		return ready
	case isServing && isTerminating:
		return servingTerminating
	case isServing:
		return serving
	case isTerminating:
		return terminating
	}
	return unready
}

func hintsOf(h *discoveryv1.EndpointHints) hints {
	if h == nil {
		return hints{}
	}
	var zones, nodes strings.Builder
	for _, z := range h.ForZones {
		zones.WriteString(z.Name + ",")
	}
	for _, n := range h.ForNodes {
		nodes.WriteString(n.Name + ",")
	}
	return hints{zones.String(), nodes.String()}
}

// has reports whether a name is in a list of hints.
func has(list, name string) bool {
	for item, rest, found := strings.Cut(list, ","); found; item, rest, found = strings.Cut(rest, ",") {
		if item == name {
			return true
		}
	}
	return false
}

func (r *slice) equal(o *slice) bool {
	return r != nil && r.name == o.name && r.ipv6 == o.ipv6 && r.problem == o.problem &&
		slices.Equal(r.ports, o.ports) && slices.Equal(r.endpoints, o.endpoints)
}

// address is the endpoint's address in its own family.
func (e *endpoint) address() netip.Addr { return netip.AddrFrom16(e.addr).Unmap() }
