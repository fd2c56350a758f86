package dns

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/dns/outside"
)

// outsideNames are the names of load balancer addresses in a zone of one's own.
// The Index's lock guards them.
type outsideNames struct {
	zone  string // with the final dot; "" has none
	names map[string][]*outsideService
	of    map[types.NamespacedName]*outsideService
	above map[string]int // how many names are below a name
}

// outsideService is a Service with load balancer addresses.
type outsideService struct {
	key       types.NamespacedName
	age       string // the older has a name that several want
	names     []string
	ttl       uint32
	addresses []netip.Addr
	alias     string // in the place of addresses
}

func newOutsideNames(zone string) outsideNames {
	return outsideNames{zone: zone, names: map[string][]*outsideService{}, of: map[types.NamespacedName]*outsideService{}, above: map[string]int{}}
}

// set takes in a Service that is new or has changed, and reports whether that changes anything.
func (o *outsideNames) set(s *corev1.Service) bool {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	if o.zone == "" || s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) == 0 {
		return o.remove(key)
	}
	next := &outsideService{key: key, age: s.CreationTimestamp.UTC().Format("20060102150405") + key.String()}
	// Whoever reads the Service's Events is told of problems by the hook; here the rest counts.
	next.names, _ = outside.Names(o.zone, s.Namespace, s.Name, s.Annotations)
	next.ttl, _ = outside.TTL(s.Annotations, outside.DefaultTTL)
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil {
			next.addresses = append(next.addresses, a.Unmap())
		} else if i.Hostname != "" {
			next.alias = strings.TrimSuffix(i.Hostname, ".") + "."
		}
	}
	if len(next.addresses) > 0 {
		next.alias = ""
	}
	if was := o.of[key]; was != nil && slices.Equal(was.names, next.names) && was.ttl == next.ttl && slices.Equal(was.addresses, next.addresses) && was.alias == next.alias {
		return false
	}
	o.remove(key)
	o.of[key] = next
	for _, n := range next.names {
		o.names[n] = append(o.names[n], next)
		o.count(n, 1)
		slices.SortFunc(o.names[n], func(a, b *outsideService) int { return cmp.Compare(a.age, b.age) })
	}
	return true
}

// remove takes in that a Service is gone, and reports whether it had names.
func (o *outsideNames) remove(key types.NamespacedName) bool {
	was := o.of[key]
	if was == nil {
		return false
	}
	delete(o.of, key)
	for _, n := range was.names {
		o.count(n, -1)
		o.names[n] = slices.DeleteFunc(o.names[n], func(s *outsideService) bool { return s == was })
		if len(o.names[n]) == 0 {
			delete(o.names, n)
		}
	}
	return true
}

// outsideZone answers for a name of the outside zone. The caller holds the Index's lock.
func (r *reply) outsideZone(name string) outcome {
	o := &r.index.outside
	if name == o.zone && (r.qtype == dns.TypeSOA || r.qtype == dns.TypeNS) {
		if r.qtype == dns.TypeSOA {
			soa := r.index.outsideSOA()
			r.answer = append(r.answer, soa)
		} else {
			r.answer = append(r.answer, &dns.NS{Hdr: r.header(dns.TypeNS), Ns: "ns.dns." + r.index.zone})
		}
		return found
	}
	list := o.names[name]
	if _, rest, some := strings.Cut(name, "."); len(list) == 0 && some {
		list = o.names["*."+rest]
	}
	if len(list) == 0 {
		if name == o.zone || o.above[name] > 0 { // a name above another exists (RFC 8020)
			return found
		}
		return noName
	}
	s := list[0]
	if s.alias != "" {
		h := r.header(dns.TypeCNAME)
		h.Ttl = s.ttl
		r.answer = append(r.answer, &dns.CNAME{Hdr: h, Target: s.alias})
		if r.qtype != dns.TypeCNAME {
			r.alias = s.alias
		}
		return found
	}
	r.addresses(s.addresses)
	for _, rr := range r.answer {
		rr.Header().Ttl = s.ttl
	}
	return found
}

// count counts a name with those above it, up to the zone.
func (o *outsideNames) count(name string, by int) {
	for _, rest, some := strings.Cut(name, "."); some && len(rest) > len(o.zone); _, rest, some = strings.Cut(rest, ".") {
		if o.above[rest] += by; o.above[rest] == 0 {
			delete(o.above, rest)
		}
	}
}

func (x *Index) outsideSOA() *dns.SOA {
	soa := x.soa()
	soa.Hdr.Name, soa.Mbox = x.outside.zone, "hostmaster."+x.outside.zone
	return soa
}
