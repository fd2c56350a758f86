package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/internal/kernel"
)

// PlaneReader is what metrics ask of the plane in force; see dataplane.Plane.
type PlaneReader interface {
	Read(ctx context.Context, what kernel.Query) (kernel.Reading, error)
}

// ReadTimeout is how long the plane may take to answer a scrape.
const ReadTimeout = 5 * time.Second

// planeMetrics shows what the plane knows of all packets, whatever their Service:
// under kube-proxy's names what that counts in its iptables mode, packets dropped
// because something went wrong, and how full maps are.
type planeMetrics struct {
	plane func() PlaneReader
	log   *slog.Logger

	invalid, localhost, rules, lastRules *prometheus.Desc
	dropped, resumed, again, strayed     *prometheus.Desc
	entries, size, limit                 *prometheus.Desc
	drivers, driven                      *prometheus.Desc
}

func newPlaneMetrics(plane func() PlaneReader, log *slog.Logger) *planeMetrics {
	describe := prometheus.NewDesc
	return &planeMetrics{
		plane: plane, log: log,
		invalid: describe(ProxySystem+"_iptables_ct_state_invalid_dropped_packets_total",
			"Packets dropped because connection tracking couldn't place them.", nil, nil),
		localhost: describe(ProxySystem+"_iptables_localhost_nodeports_accepted_packets_total",
			"Packets to node ports at loopback addresses.", nil, nil),
		rules:     describe(ProxySystem+"_sync_proxy_rules_iptables_total", "Rules of iptables that are this agent's.", []string{familyLabel, "table"}, nil),
		lastRules: describe(ProxySystem+"_sync_proxy_rules_iptables_last", "Rules of iptables that the last sync wrote.", []string{familyLabel, "table"}, nil),
		dropped: describe("fairway_dropped_packets_total",
			"Packets that the data plane dropped because something went wrong, by what that was.", []string{"reason"}, nil),
		resumed: describe("fairway_stray_connections_forwarded_total",
			"Connections with stable flows that this node didn't know, and led on to their endpoint.", nil, nil),
		again: describe("fairway_stray_packets_forwarded_again_total",
			"Packets of connections with stable flows that another node led here, and this one to the second choice.", nil, nil),
		strayed: describe("fairway_stray_packets_reset_total",
			"Packets of connections with stable flows that were reset, since the endpoint's node didn't know them.", nil, nil),
		entries: describe("fairway_map_entries", "Entries of a map that the data plane's programs fill.", []string{"map"}, nil),
		size:    describe("fairway_map_size", "How many entries it has room for now.", []string{"map"}, nil),
		limit:   describe("fairway_map_limit", "How many it may have room for.", []string{"map"}, nil),
		drivers: describe("fairway_xdp_interface", "1 for an interface whose driver forwards packets, 0 where it should and can't.", []string{"interface"}, nil),
		driven:  describe("fairway_xdp_forwarded_packets_total", "Packets that drivers forwarded.", nil, nil),
	}
}

// Describe is part of prometheus.Collector.
func (m *planeMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.invalid, m.localhost, m.rules, m.lastRules, m.dropped, m.resumed, m.again, m.strayed, m.entries, m.size, m.limit, m.drivers, m.driven} {
		out <- d
	}
}

// Collect is part of prometheus.Collector. What can't be read is missing.
func (m *planeMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), ReadTimeout)
	defer cancel()
	found, err := m.plane().Read(ctx, kernel.Query{Packets: true, Drops: true, Strays: true, Maps: true, Drivers: true})
	if err != nil {
		m.log.Warn("the data plane's counters can't be read; metrics are missing", "error", err)
	}
	if p := found.Packets; p != nil {
		out <- prometheus.MustNewConstMetric(m.invalid, prometheus.CounterValue, float64(p.InvalidDropped))
		out <- prometheus.MustNewConstMetric(m.localhost, prometheus.CounterValue, float64(p.LocalhostNodePorts))
		for _, r := range p.Rules {
			family := "IPv4"
			if r.IPv6 {
				family = "IPv6"
			}
			out <- prometheus.MustNewConstMetric(m.rules, prometheus.GaugeValue, float64(r.Total), family, r.Table)
			out <- prometheus.MustNewConstMetric(m.lastRules, prometheus.GaugeValue, float64(r.Last), family, r.Table)
		}
	}
	for _, d := range found.Drops {
		out <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(d.Packets), d.Reason)
	}
	if s := found.Strays; s != nil {
		out <- prometheus.MustNewConstMetric(m.resumed, prometheus.CounterValue, float64(s.Forwarded))
		out <- prometheus.MustNewConstMetric(m.again, prometheus.CounterValue, float64(s.ForwardedAgain))
		out <- prometheus.MustNewConstMetric(m.strayed, prometheus.CounterValue, float64(s.Reset))
	}
	if d := found.Drivers; d != nil {
		for _, at := range d.Interfaces {
			works := 0.0
			if at.XDP {
				works = 1
			}
			out <- prometheus.MustNewConstMetric(m.drivers, prometheus.GaugeValue, works, at.Interface)
		}
		out <- prometheus.MustNewConstMetric(m.driven, prometheus.CounterValue, float64(d.Forwarded))
	}
	for _, u := range found.Maps {
		out <- prometheus.MustNewConstMetric(m.entries, prometheus.GaugeValue, float64(u.Entries), u.Map)
		out <- prometheus.MustNewConstMetric(m.size, prometheus.GaugeValue, float64(u.Size), u.Map)
		out <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(u.Limit), u.Map)
	}
}
