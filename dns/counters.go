package dns

import (
	"net/netip"
	"time"

	"github.com/coredns/coredns/plugin/metrics/vars"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// counters count direct answers as CoreDNS' prometheus plugin counts those
// that go through it.
type counters struct {
	requests                         map[requestLabels]prometheus.Counter
	answered, denied                 prometheus.Counter
	do                               prometheus.Counter
	duration, requestSize, replySize prometheus.Observer
}

type requestLabels struct {
	six   bool
	qtype uint16
}

// newCounters are those of a server; its one zone is the root.
func newCounters(server string) *counters {
	const zone, view, proto = ".", "", "udp"
	c := &counters{
		requests:    map[requestLabels]prometheus.Counter{},
		answered:    vars.ResponseRcode.WithLabelValues(server, zone, view, dns.RcodeToString[dns.RcodeSuccess], pluginName),
		denied:      vars.ResponseRcode.WithLabelValues(server, zone, view, dns.RcodeToString[dns.RcodeNameError], pluginName),
		do:          vars.RequestDo.WithLabelValues(server, zone, view),
		duration:    vars.RequestDuration.WithLabelValues(server, zone, view),
		requestSize: vars.RequestSize.WithLabelValues(server, zone, view, proto),
		replySize:   vars.ResponseSize.WithLabelValues(server, zone, view, proto),
	}
	for six, family := range map[bool]string{false: "1", true: "2"} { // IANA's address family numbers
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			c.requests[requestLabels{six, qtype}] = vars.RequestCount.WithLabelValues(server, zone, view, proto, family, dns.TypeToString[qtype])
		}
	}
	return c
}

// count counts a direct answer.
func (c *counters) count(q asked, client netip.Addr, request, reply int) {
	c.requests[requestLabels{client.Is6(), q.qtype}].Inc()
	if q.do {
		c.do.Inc()
	}
	c.requestSize.Observe(float64(request))
	c.replySize.Observe(float64(reply))
	if q.rcode == dns.RcodeSuccess {
		c.answered.Inc()
	} else {
		c.denied.Inc()
	}
}

// took counts how long a batch of answers took.
func (c *counters) took(n int, d time.Duration) {
	for range n {
		c.duration.Observe(d.Seconds())
	}
}
