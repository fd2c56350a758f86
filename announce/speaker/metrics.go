package speaker

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/announce/bgp"
)

// collector shows what this node announces, under MetalLB's names.
type collector struct {
	speaker                                                   *Speaker
	announced, requests, responses, gratuitous, unsigned, bad *prometheus.Desc
}

// Collector is for /metrics.
func (n *Speaker) Collector() prometheus.Collector {
	layer2 := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("metallb_layer2_"+name, help, labels, nil)
	}
	return &collector{
		speaker: n,
		announced: prometheus.NewDesc("metallb_speaker_announced", "Services' addresses that this node announces.",
			[]string{"service", "protocol", "node", "ip"}, nil),
		requests:   layer2("requests_received", "Requests (ARP, NDP) for an address that this node announces.", "ip"),
		responses:  layer2("responses_sent", "Answers to such requests.", "ip"),
		gratuitous: layer2("gratuitous_sent", "Times that all machines of a link were told of an address unasked.", "ip"),
		unsigned:   prometheus.NewDesc("fairway_announce_unsigned_adverts_total", "Adverts without this cluster's signature.", nil, nil),
		bad:        prometheus.NewDesc("fairway_announce_failed_frames_total", "Frames that could not be sent.", nil, nil),
	}
}

// Describe is part of prometheus.Collector.
func (m *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.announced, m.requests, m.responses, m.gratuitous, m.unsigned, m.bad} {
		out <- d
	}
	for _, s := range sessionMetrics {
		out <- s.desc
	}
	for _, w := range wayMetrics {
		out <- w.desc
	}
}

// Collect is part of prometheus.Collector.
func (m *collector) Collect(out chan<- prometheus.Metric) {
	n := m.speaker
	m.collectAnnounced(out)
	collectSessions(out, n.routers.Status())
	collectWays(out, n.ways.Status())
	n.mu.Lock()
	layer2 := n.layer2
	n.mu.Unlock()
	if layer2 == nil {
		return
	}
	for address, c := range layer2.Counts().Addresses() {
		ip := address.String()
		out <- prometheus.MustNewConstMetric(m.requests, prometheus.CounterValue, float64(c.Requests), ip)
		out <- prometheus.MustNewConstMetric(m.responses, prometheus.CounterValue, float64(c.Responses), ip)
		out <- prometheus.MustNewConstMetric(m.gratuitous, prometheus.CounterValue, float64(c.Gratuitous), ip)
	}
	problems := layer2.Counts().Problems()
	out <- prometheus.MustNewConstMetric(m.unsigned, prometheus.CounterValue, float64(n.cluster.Foreign.Frames()))
	out <- prometheus.MustNewConstMetric(m.bad, prometheus.CounterValue, float64(problems.Failed))
}

func (m *collector) collectAnnounced(out chan<- prometheus.Metric) {
	type way struct {
		address  netip.Addr
		protocol string
	}
	told := map[way]bool{} // an address may be on several links
	for _, a := range m.speaker.status().Addresses {
		w := way{a.Address, a.Protocol}
		if a.Since.IsZero() || told[w] {
			continue
		}
		told[w] = true
		for _, service := range a.Services {
			out <- prometheus.MustNewConstMetric(m.announced, prometheus.GaugeValue, 1, service, a.Protocol, m.speaker.node, a.Address.String())
		}
	}
}

// sessionMetrics are MetalLB's of BGP sessions, by router and VRF.
var sessionMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*bgp.Status) float64
}{
	{bgpDesc("session_up", "BGP session state (1 is up)."), prometheus.GaugeValue, func(s *bgp.Status) float64 {
		if s.State == bgp.Established {
			return 1
		}
		return 0
	}},
	{bgpDesc("announced_prefixes_total", "Prefixes announced on the BGP session."), prometheus.GaugeValue, func(s *bgp.Status) float64 { return float64(len(s.Prefixes)) }},
	{bgpDesc("updates_total", "BGP UPDATE messages sent."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.UpdatesSent) }},
	{bgpDesc("updates_total_received", "BGP UPDATE messages received."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.UpdatesReceived) }},
	{bgpDesc("opens_sent", "BGP OPEN messages sent."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.OpensSent) }},
	{bgpDesc("opens_received", "BGP OPEN messages received."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.OpensReceived) }},
	{bgpDesc("notifications_sent", "BGP NOTIFICATION messages sent."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.NotificationsSent) }},
	{bgpDesc("notifications_received", "BGP NOTIFICATION messages received."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.NotificationsReceived) }},
	{bgpDesc("keepalives_sent", "BGP KEEPALIVE messages sent."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.KeepalivesSent) }},
	{bgpDesc("keepalives_received", "BGP KEEPALIVE messages received."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.KeepalivesReceived) }},
	{bgpDesc("total_sent", "BGP messages sent."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.Sent) }},
	{bgpDesc("total_received", "BGP messages received."), prometheus.CounterValue, func(s *bgp.Status) float64 { return float64(s.Counts.Received) }},
}

func bgpDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("metallb_bgp_"+name, help, []string{"peer", "vrf"}, nil)
}

func collectSessions(out chan<- prometheus.Metric, sessions []bgp.Status) {
	seen := map[[2]string]bool{} // two BGPPeers may be one router
	for i := range sessions {
		s := &sessions[i]
		peer := s.Peer.Interface
		if s.Address.IsValid() {
			peer = s.Address.String()
		}
		key := [2]string{peer, s.Peer.VRF}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, m := range sessionMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), peer, s.Peer.VRF)
		}
	}
}

// wayMetrics are MetalLB's of BFD sessions, by router and VRF.
var wayMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*bfd.Status) float64
}{
	{bfdDesc("session_up", "BFD session state (1 is up)."), prometheus.GaugeValue, func(s *bfd.Status) float64 {
		if s.State == bfd.Up {
			return 1
		}
		return 0
	}},
	{bfdDesc("control_packet_input", "BFD control packets received."), prometheus.CounterValue, func(s *bfd.Status) float64 { return float64(s.Counts.Received) }},
	{bfdDesc("control_packet_output", "BFD control packets sent."), prometheus.CounterValue, func(s *bfd.Status) float64 { return float64(s.Counts.Sent) }},
	{bfdDesc("session_up_events", "Times that the BFD session came up."), prometheus.CounterValue, func(s *bfd.Status) float64 { return float64(s.Counts.Ups) }},
	{bfdDesc("session_down_events", "Times that the BFD session went down."), prometheus.CounterValue, func(s *bfd.Status) float64 { return float64(s.Counts.Downs) }},
}

func bfdDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("metallb_bfd_"+name, help, []string{"peer", "vrf"}, nil)
}

func collectWays(out chan<- prometheus.Metric, ways []bfd.Status) {
	seen := map[[2]string]bool{} // two BGPPeers may be one router
	for i := range ways {
		w := &ways[i]
		key := [2]string{w.Address.String(), w.VRF}
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, m := range wayMetrics {
			out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(w), key[0], key[1])
		}
	}
}
