package dns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// example is a cluster with one Service of every sort.
func example() *Index {
	x := NewIndex(IndexConfig{Zone: "cluster.local", Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}})
	x.SetService(clusterService("web", "10.96.0.20", "fd00:96::20"))
	x.SetService(headlessService("db"))
	x.SetSlice(sliceOf("db", "db-4", discoveryv1.AddressTypeIPv4, "10.244.1.2=db-0", "10.244.1.3=db-1", "10.244.1.4=db-2!"))
	x.SetSlice(sliceOf("db", "db-6", discoveryv1.AddressTypeIPv6, "fd00:244::2=db-0"))
	x.SetService(headlessService("plain"))
	x.SetSlice(sliceOf("plain", "plain-4", discoveryv1.AddressTypeIPv4, "10.244.2.2"))
	x.SetSlice(sliceOf("plain", "plain-6", discoveryv1.AddressTypeIPv6, "fd00:244:2::2"))
	x.SetService(headlessService("empty"))
	x.SetSlice(sliceOf("empty", "empty-4", discoveryv1.AddressTypeIPv4, "10.244.2.9!"))
	early := headlessService("early")
	early.Spec.PublishNotReadyAddresses = true
	x.SetService(early)
	x.SetSlice(sliceOf("early", "early-4", discoveryv1.AddressTypeIPv4, "10.244.2.10=early-0!"))
	for name, target := range map[string]string{
		"inside": "web.default.svc.cluster.local", "twice": "inside.default.svc.cluster.local",
		"dangling": "nothing.default.svc.cluster.local", "circle": "circle.default.svc.cluster.local",
	} {
		x.SetService(newService(name, func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, target
		}))
	}
	x.Synced()
	return x
}

// TestSpecification asks for every record of the Kubernetes DNS specification
// 1.1.0. A question is "TYPE name", the name below the zone unless it ends in a
// dot; an answer is the status and the records with their TTLs.
func TestSpecification(t *testing.T) {
	at := serve(t, example())
	const zone = "cluster.local."
	for question, want := range map[string]string{
		// 2.2: the schema's version.
		"TXT dns-version": `NOERROR; 5 TXT "1.1.0"`,
		"A dns-version":   "NOERROR",

		// 2.3: Services with a cluster IP.
		"A web.default.svc":                    "NOERROR; 5 A 10.96.0.20",
		"AAAA web.default.svc":                 "NOERROR; 5 AAAA fd00:96::20",
		"A WeB.DeFaUlT.sVc":                    "NOERROR; 5 A 10.96.0.20",
		"MX web.default.svc":                   "NOERROR",
		"SRV _http._tcp.web.default.svc":       "NOERROR; 5 SRV 0 100 80 web.default.svc.cluster.local.",
		"SRV _dns._udp.web.default.svc":        "NOERROR; 5 SRV 0 100 53 web.default.svc.cluster.local.",
		"SRV _http._udp.web.default.svc":       "NXDOMAIN",
		"SRV _admin._tcp.web.default.svc":      "NXDOMAIN",
		"A _http._tcp.web.default.svc":         "NOERROR",
		"SRV http.tcp.web.default.svc":         "NXDOMAIN",
		"A pod.web.default.svc":                "NXDOMAIN",
		"PTR 20.0.96.10.in-addr.arpa.":         "NOERROR; 5 PTR web.default.svc.cluster.local.",
		"PTR " + reverseName(t, "fd00:96::20"): "NOERROR; 5 PTR web.default.svc.cluster.local.",

		// 2.4: headless Services.
		"A db.default.svc":                     "NOERROR; 5 A 10.244.1.2; 5 A 10.244.1.3",
		"AAAA db.default.svc":                  "NOERROR; 5 AAAA fd00:244::2",
		"A db-0.db.default.svc":                "NOERROR; 5 A 10.244.1.2",
		"AAAA db-0.db.default.svc":             "NOERROR; 5 AAAA fd00:244::2",
		"AAAA db-1.db.default.svc":             "NOERROR",
		"A db-2.db.default.svc":                "NXDOMAIN",
		"A 10-244-2-2.plain.default.svc":       "NOERROR; 5 A 10.244.2.2",
		"AAAA fd00-244-2--2.plain.default.svc": "NOERROR; 5 AAAA fd00:244:2::2",
		"SRV _http._tcp.db.default.svc":        "NOERROR; 5 SRV 0 50 8080 db-0.db.default.svc.cluster.local.; 5 SRV 0 50 8080 db-1.db.default.svc.cluster.local.",
		"SRV _admin._tcp.plain.default.svc":    "NOERROR; 5 SRV 0 50 9090 10-244-2-2.plain.default.svc.cluster.local.; 5 SRV 0 50 9090 fd00-244-2--2.plain.default.svc.cluster.local.",
		"PTR 2.1.244.10.in-addr.arpa.":         "NOERROR; 5 PTR db-0.db.default.svc.cluster.local.",
		"PTR " + reverseName(t, "fd00:244::2"): "NOERROR; 5 PTR db-0.db.default.svc.cluster.local.",
		"A empty.default.svc":                  "NXDOMAIN",
		"SRV _http._tcp.empty.default.svc":     "NXDOMAIN",
		"A early.default.svc":                  "NOERROR; 5 A 10.244.2.10",
		"A early-0.early.default.svc":          "NOERROR; 5 A 10.244.2.10",

		// 2.5: ExternalName, followed to its end.
		"CNAME inside.default.svc": "NOERROR; 5 CNAME web.default.svc.cluster.local.",
		"A inside.default.svc":     "NOERROR; 5 A 10.96.0.20; 5 CNAME web.default.svc.cluster.local.",
		"AAAA twice.default.svc":   "NOERROR; 5 AAAA fd00:96::20; 5 CNAME inside.default.svc.cluster.local.; 5 CNAME web.default.svc.cluster.local.",
		"A dangling.default.svc":   "NXDOMAIN; 5 CNAME nothing.default.svc.cluster.local.",

		// Pods by their addresses.
		"A 10-244-1-2.default.pod":     "NOERROR; 5 A 10.244.1.2",
		"AAAA fd00-244--2.default.pod": "NOERROR; 5 AAAA fd00:244::2",
		"AAAA 10-244-1-2.default.pod":  "NOERROR",
		"A nonsense.default.pod":       "NXDOMAIN",
		"A x.10-244-1-2.default.pod":   "NXDOMAIN",

		// Names with nothing but other names below them, and names with nothing.
		"A svc": "NOERROR", "A default.svc": "NOERROR", "A other.svc": "NXDOMAIN", "A default.pod": "NOERROR", "A pod": "NOERROR",
		"A _tcp.web.default.svc": "NOERROR", "A _sctp.web.default.svc": "NXDOMAIN", "A nothing.default.svc": "NXDOMAIN",
		"A a.b.c.d.e.f.default.svc": "NXDOMAIN", `A we\.b.default.svc`: "NXDOMAIN",

		// The zone.
		"NS cluster.local.": "NOERROR; 5 NS ns.dns.cluster.local.",
		"A ns.dns":          "NOERROR; 5 A 10.96.0.10",
		"A cluster.local.":  "NOERROR",
		// Others' names, without upstreams.
		"A example.com.":       "REFUSED",
		"A xcluster.local.":    "REFUSED",
		"A circle.default.svc": "SERVFAIL",
	} {
		qtype, name, _ := strings.Cut(question, " ")
		if !strings.HasSuffix(name, ".") {
			name += "." + zone
		}
		for _, transport := range []string{"+notcp", "+tcp"} {
			status, records := dig(t, at, transport, qtype, name)
			if name == "circle.default.svc."+zone {
				records = nil
			}
			if got := strings.Join(append([]string{status}, records...), "; "); got != want {
				t.Errorf("%s (%s): got %s, want %s", question, transport, got, want)
			}
		}
	}
}

func reverseName(t *testing.T, address string) string {
	t.Helper()
	raw := netip.MustParseAddr(address).As16()
	var b strings.Builder
	for _, v := range slices.Backward(raw[:]) {
		b.WriteString(string("0123456789abcdef"[v&15]) + "." + string("0123456789abcdef"[v>>4]) + ".")
	}
	return b.String() + "ip6.arpa."
}

// TestUnsynced checks that a server that doesn't know the records yet doesn't
// deny them.
func TestUnsynced(t *testing.T) {
	at := serve(t, NewIndex(IndexConfig{Zone: "cluster.local"}))
	for name, kind := range map[string]string{
		"web.default.svc.cluster.local.": "A", "1.0.96.10.in-addr.arpa.": "PTR", reverseName(t, "fd00:10:96::1"): "PTR",
	} {
		if status, _ := dig(t, at, kind, name); status != "SERVFAIL" {
			t.Errorf("%s: got %s, want SERVFAIL", name, status)
		}
	}
}

// TestNegativeAnswersAreNotKept checks that a new name is there for a client
// that was told before that it isn't (RFC 2308, section 5).
func TestNegativeAnswersAreNotKept(t *testing.T) {
	r, outcome := example().lookup("nothing.default.svc.cluster.local.", 1)
	if outcome != noName || r.authority == nil {
		t.Fatalf("got outcome %d and %v, want NXDOMAIN with SOA", outcome, r.authority)
	}
	if r.authority.Hdr.Ttl != 0 || r.authority.Minttl != 0 {
		t.Errorf("negative TTLs %d and %d, want 0", r.authority.Hdr.Ttl, r.authority.Minttl)
	}
}
