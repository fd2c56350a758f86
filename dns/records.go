package dns

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
)

func (r *reply) wants(rrtype uint16) bool { return r.qtype == rrtype || r.qtype == dns.TypeANY }

func (r *reply) header(rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: r.owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: r.index.ttl}
}

// addresses answers with those of the family asked for.
func (r *reply) addresses(list []netip.Addr) {
	for _, a := range list {
		if r.wants(addressType(a)) {
			r.answer = append(r.answer, addressRecord(r.owner, r.index.ttl, a))
		}
	}
}

func addressType(a netip.Addr) uint16 {
	if a.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}

func addressRecord(owner string, ttl uint32, a netip.Addr) dns.RR {
	h := dns.RR_Header{Name: owner, Rrtype: addressType(a), Class: dns.ClassINET, Ttl: ttl}
	if a.Is4() {
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}

func appendAddresses(records []dns.RR, owner string, ttl uint32, list []netip.Addr) []dns.RR {
	for _, a := range list {
		records = append(records, addressRecord(owner, ttl, a))
	}
	return records
}

// rotate starts at a random one, since many clients use the first only.
func rotate(list []netip.Addr) []netip.Addr {
	if len(list) < 2 {
		return list
	}
	i := rand.IntN(len(list))
	return append(slices.Clone(list[i:]), list[:i]...)
}

// unique removes what a list has twice: an endpoint may be in several slices.
func unique(list []netip.Addr) []netip.Addr {
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// hasPort reports whether there is an SRV record for the port; "" stands for
// any.
func (svc *service) hasPort(name, proto string) bool {
	matches := func(p port) bool { return p.name != "" && (name == "" || p.name == name) && p.proto == proto }
	switch svc.live.kind {
	case clusterIP:
		return slices.ContainsFunc(svc.live.ports, matches)
	case headless:
		for s := range svc.ready() {
			if slices.ContainsFunc(s.ports, matches) {
				return true
			}
		}
	}
	return false
}

// ports answers with the SRV records of a port, or of all with "".
func (r *reply) ports(svc *service, name, proto string) {
	matches := func(p port) bool { return name == "" || p.name == name && p.proto == proto }
	serviceName := svc.key.Name + "." + svc.key.Namespace + ".svc." + r.index.zone
	if svc.live.kind == clusterIP {
		for _, p := range svc.live.ports {
			if matches(p) {
				r.target(serviceName, p.number)
			}
		}
		if len(r.answer) > 0 {
			r.extra = appendAddresses(r.extra, serviceName, r.index.ttl, svc.live.addresses)
		}
		return
	}
	type target struct {
		name   string
		number uint16
	}
	targets, extras := map[target]bool{}, map[endpoint]bool{}
	for s, e := range svc.answering(&r.index.gone) {
		for _, p := range s.ports {
			if !matches(p) {
				continue
			}
			name := e.name() + "." + serviceName
			if t := (target{name, p.number}); !targets[t] {
				targets[t] = true
				r.target(name, p.number)
			}
			if !extras[*e] {
				extras[*e] = true
				r.extra = append(r.extra, addressRecord(name, r.index.ttl, e.address))
			}
		}
	}
	for _, rr := range r.answer {
		if srv, ok := rr.(*dns.SRV); ok { // all alike
			srv.Weight = uint16(max(1, 100/len(r.answer)))
		}
	}
}

func (r *reply) target(name string, number uint16) {
	r.answer = append(r.answer, &dns.SRV{Hdr: r.header(dns.TypeSRV), Weight: 100, Port: number, Target: name})
}

// reverse answers for an address.
func (r *reply) reverse(name string) outcome {
	a, err := netip.ParseAddr(dnsutil.ExtractAddressFromReverse(name))
	if err != nil {
		return notOurs
	}
	x := r.index
	x.mu.RLock()
	defer x.mu.RUnlock()
	if svc := x.addresses[a.Unmap()]; svc != nil {
		r.pointer(svc.key.Name + "." + svc.key.Namespace + ".svc." + x.zone)
	}
	for _, h := range x.hosts[a.Unmap()] {
		r.pointer(h.hostname + "." + h.service.Name + "." + h.service.Namespace + ".svc." + x.zone)
	}
	switch {
	case len(r.answer) > 0:
		return found
	case !x.synced: // it may be one that isn't known yet, of which others know nothing
		return notYet
	}
	return notOurs
}

func (r *reply) pointer(name string) {
	r.answer = append(r.answer, &dns.PTR{Hdr: r.header(dns.TypePTR), Ptr: name})
}

// soa is the zone's. Its TTL and minimum forbid others to remember that a name
// is not there (RFC 2308, section 5), so a new name is there for everybody at
// once.
func (x *Index) soa() *dns.SOA {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: x.zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET},
		Ns:  "ns.dns." + x.zone, Mbox: "hostmaster." + x.zone,
		Serial: x.changes, Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: 0,
	}
}

// What secondary servers would go by, if there were any: in seconds.
const soaRefresh, soaRetry, soaExpire = 7200, 1800, 86400
