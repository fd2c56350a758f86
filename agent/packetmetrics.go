package agent

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/dataplane"
)

// packetMetrics shows what the plane counts of packets and rules under the names
// that kube-proxy has for its iptables mode.
type packetMetrics struct {
	counter func() dataplane.PacketCounter // nil if the plane has none
	log     *slog.Logger

	invalid, localhost, rules, lastRules *prometheus.Desc
}

func newPacketMetrics(counter func() dataplane.PacketCounter, log *slog.Logger) *packetMetrics {
	return &packetMetrics{
		counter: counter, log: log,
		invalid: prometheus.NewDesc(proxySystem+"_iptables_ct_state_invalid_dropped_packets_total",
			"Packets dropped because connection tracking couldn't place them.", nil, nil),
		localhost: prometheus.NewDesc(proxySystem+"_iptables_localhost_nodeports_accepted_packets_total",
			"Packets to node ports at loopback addresses.", nil, nil),
		rules: prometheus.NewDesc(proxySystem+"_sync_proxy_rules_iptables_total",
			"Rules of iptables that are this agent's.", []string{familyLabel, "table"}, nil),
		lastRules: prometheus.NewDesc(proxySystem+"_sync_proxy_rules_iptables_last",
			"Rules of iptables that the last round wrote.", []string{familyLabel, "table"}, nil),
	}
}

// Describe is part of prometheus.Collector.
func (m *packetMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.invalid, m.localhost, m.rules, m.lastRules} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *packetMetrics) Collect(out chan<- prometheus.Metric) {
	counter := m.counter()
	if counter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), countPatience)
	defer cancel()
	p, err := counter.Packets(ctx)
	if err != nil {
		m.log.Warn("the data plane doesn't say what it counted", "error", err)
		return
	}
	if p.Counted {
		out <- prometheus.MustNewConstMetric(m.invalid, prometheus.CounterValue, float64(p.InvalidDropped))
		out <- prometheus.MustNewConstMetric(m.localhost, prometheus.CounterValue, float64(p.LocalhostNodePorts))
	}
	for _, r := range p.Rules {
		family := "IPv4"
		if r.IPv6 {
			family = "IPv6"
		}
		out <- prometheus.MustNewConstMetric(m.rules, prometheus.GaugeValue, float64(r.Total), family, r.Table)
		out <- prometheus.MustNewConstMetric(m.lastRules, prometheus.GaugeValue, float64(r.Last), family, r.Table)
	}
}

// counter is the plane in force as one that counts, or nil.
func (s *switcher) counter() dataplane.Counter {
	c, _ := s.current().plane.(dataplane.Counter)
	return c
}

func (s *switcher) packetCounter() dataplane.PacketCounter {
	c, _ := s.current().plane.(dataplane.PacketCounter)
	return c
}
