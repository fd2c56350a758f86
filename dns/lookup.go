package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/types"
)

// specVersion is the version of the Kubernetes DNS specification followed here
// (specification.md of kubernetes/dns).
const specVersion = "1.1.0"

// outcome is what an Index has to say about a question.
type outcome uint8

const (
	notOurs outcome = iota // somebody else may know
	notYet                 // the records aren't complete
	noName                 // NXDOMAIN
	found                  // NOERROR; without records it is NODATA
)

// reply is an answer in the making.
type reply struct {
	index  *Index
	owner  string // as the question has it, letter case included
	qtype  uint16
	answer []dns.RR
	extra  []dns.RR
	// authority goes with answers that have no records (RFC 2308).
	authority *dns.SOA
	alias     string // where an ExternalName leads; the rest is to be found there
}

// lookup answers a question. Names are compared without regard to case, and
// answers have the question's (RFC 4343).
func (x *Index) lookup(qname string, qtype uint16) (*reply, outcome) {
	r := &reply{index: x, owner: qname, qtype: qtype}
	name := strings.ToLower(qname)
	if below, ours := x.below(name); ours {
		x.mu.RLock()
		defer x.mu.RUnlock()
		if !x.synced {
			return r, notYet
		}
		outcome := r.inZone(below)
		if len(r.answer) == 0 {
			r.authority = x.soa()
		}
		return r, outcome
	}
	if zone := x.outside.zone; zone != "" && dns.IsSubDomain(zone, name) {
		x.mu.RLock()
		defer x.mu.RUnlock()
		if !x.synced {
			return r, notYet
		}
		outcome := r.outsideZone(name)
		if len(r.answer) == 0 {
			r.authority = x.outsideSOA()
		}
		return r, outcome
	}
	if qtype == dns.TypePTR && strings.HasSuffix(name, ".arpa.") {
		return r, r.reverse(name)
	}
	return r, notOurs
}

// below is the part of a name below the zone.
func (x *Index) below(name string) (string, bool) {
	if name == x.zone {
		return "", true
	}
	rest, ours := strings.CutSuffix(name, x.zone)
	if !ours || !strings.HasSuffix(rest, ".") || strings.HasSuffix(rest, `\.`) {
		return "", false
	}
	return rest[:len(rest)-1], true
}

// maxLabels is how many labels the longest names have below the zone:
// _port._proto.service.namespace.svc.
const maxLabels = 5

func (r *reply) inZone(name string) outcome {
	if name == "" {
		return r.apex()
	}
	if strings.IndexByte(name, '\\') >= 0 { // no name here needs escaping
		return noName
	}
	var labels [maxLabels]string // from the right
	n := 0
	for rest, more := name, true; more; n++ {
		if n == maxLabels {
			return noName
		}
		i := strings.LastIndexByte(rest, '.')
		labels[n] = rest[i+1:]
		if more = i >= 0; more {
			rest = rest[:i]
		}
	}
	switch labels[0] {
	case "svc":
		return r.services(labels[1:n])
	case "pod":
		return r.pods(labels[1:n])
	case "dns-version":
		if n == 1 {
			if r.wants(dns.TypeTXT) {
				r.answer = append(r.answer, &dns.TXT{Hdr: r.header(dns.TypeTXT), Txt: []string{specVersion}})
			}
			return found
		}
	case "dns": // ns.dns is the name server
		if n == 1 {
			return found
		}
		if n == 2 && labels[1] == "ns" {
			r.addresses(r.index.config.Servers)
			return found
		}
	}
	return noName
}

// apex answers for the zone itself.
func (r *reply) apex() outcome {
	switch r.qtype {
	case dns.TypeSOA:
		soa := r.index.soa()
		soa.Hdr = r.header(dns.TypeSOA)
		r.answer = append(r.answer, soa)
	case dns.TypeNS:
		ns := &dns.NS{Hdr: r.header(dns.TypeNS), Ns: "ns.dns." + r.index.zone}
		r.answer = append(r.answer, ns)
		r.extra = appendAddresses(r.extra, ns.Ns, r.index.ttl, r.index.config.Servers)
	}
	return found
}

// services answers for names below svc: labels are namespace, Service and what
// is below it.
func (r *reply) services(labels []string) outcome {
	switch {
	case len(labels) == 0:
		return found
	case len(labels) == 1:
		if r.index.namespaces[labels[0]] == 0 {
			return noName
		}
		return found
	}
	svc := r.index.services[types.NamespacedName{Namespace: labels[0], Name: labels[1]}]
	if svc == nil || svc.live == nil {
		return noName
	}
	switch len(labels) {
	case 2:
		return r.service(svc)
	case 3:
		return r.belowService(svc, labels[2])
	}
	return r.port(svc, labels[3], labels[2])
}

func (r *reply) service(svc *service) outcome {
	switch svc.live.kind {
	case externalName:
		r.answer = append(r.answer, &dns.CNAME{Hdr: r.header(dns.TypeCNAME), Target: svc.live.target})
		if r.qtype != dns.TypeCNAME {
			r.alias = svc.live.target
		}
		return found
	case headless:
		some := false
		var list []netip.Addr
		for _, e := range svc.answering(&r.index.gone) {
			some = true
			list = append(list, e.address)
		}
		if !some {
			return noName
		}
		r.addresses(rotate(unique(list)))
	default:
		r.addresses(svc.live.addresses)
	}
	if r.qtype == dns.TypeSRV { // all ports: not in the specification, but as everywhere
		r.ports(svc, "", "")
	}
	return found
}

// belowService answers for an endpoint's name, or the empty name of a protocol.
func (r *reply) belowService(svc *service, label string) outcome {
	if strings.HasPrefix(label, "_") {
		if svc.hasPort("", label) {
			return found
		}
		return noName
	}
	if svc.live.kind != headless {
		return noName
	}
	list := svc.named(label)
	if len(list) == 0 {
		return noName
	}
	r.addresses(list)
	return found
}

// port answers for _port._proto of a Service.
func (r *reply) port(svc *service, name, proto string) outcome {
	name, marked := strings.CutPrefix(name, "_")
	if !marked || name == "" || !svc.hasPort(name, proto) {
		return noName
	}
	if r.wants(dns.TypeSRV) {
		r.ports(svc, name, proto)
	}
	return found
}

// pods answers for names below pod, namespace first: an address with dashes is
// that address, whether or not there is such a pod (as CoreDNS' "pods
// insecure", which kubeadm sets up; the specification asks for no more).
func (r *reply) pods(labels []string) outcome {
	if len(labels) > 0 && !isLabel(labels[0]) || len(labels) > 2 {
		return noName
	}
	if len(labels) < 2 {
		return found
	}
	a, ok := undashed(labels[1])
	if !ok {
		return noName
	}
	r.addresses([]netip.Addr{a})
	return found
}

// undashed reads an address written with dashes.
func undashed(label string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil {
		return a, true
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
	return a, err == nil && a.Zone() == ""
}

// isLabel reports whether a namespace can have this name (RFC 1123).
func isLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && i > 0 && i < len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}
