package metrics

import (
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/documented"
)

// proxyMetrics are the names that pkg/proxy/metrics/metrics.go of kube-proxy
// registers, as of 1.37.0: those of 1.28.15 to 1.36.3 are among them. With each
// is whether it is here.
var proxyMetrics = map[string]bool{
	"sync_proxy_rules_duration_seconds":                            true,
	"sync_full_proxy_rules_duration_seconds":                       true,
	"sync_partial_proxy_rules_duration_seconds":                    true,
	"sync_proxy_rules_last_timestamp_seconds":                      true,
	"sync_proxy_rules_last_queued_timestamp_seconds":               true,
	"network_programming_duration_seconds":                         true,
	"sync_proxy_rules_endpoint_changes_pending":                    true,
	"sync_proxy_rules_endpoint_changes_total":                      true,
	"sync_proxy_rules_service_changes_pending":                     true,
	"sync_proxy_rules_service_changes_total":                       true,
	"sync_proxy_rules_no_local_endpoints_total":                    true,
	"sync_proxy_rules_iptables_restore_failures_total":             true,
	"sync_proxy_rules_iptables_partial_restore_failures_total":     true,
	"sync_proxy_rules_iptables_total":                              true,
	"sync_proxy_rules_iptables_last":                               true,
	"iptables_ct_state_invalid_dropped_packets_total":              true,
	"iptables_localhost_nodeports_accepted_packets_total":          true,
	"sync_proxy_rules_nftables_sync_failures_total":                true,
	"sync_proxy_rules_nftables_cleanup_failures_total":             true,
	"conntrack_reconciler_sync_duration_seconds":                   true,
	"conntrack_reconciler_deleted_entries_total":                   true,
	"proxy_healthz_total":                                          true,
	"proxy_livez_total":                                            true,
	"nftables_localhost_nodeport_listeners":                        false,
	"nftables_localhost_nodeport_listener_creation_failures_total": false,
	"nftables_localhost_nodeport_rejected_packets_total":           false,
	"sync_proxy_rules_winkernel_lb_create_failures_total":          false,
	"sync_proxy_rules_winkernel_lb_update_failures_total":          false,
	"sync_proxy_rules_winkernel_lb_delete_failures_total":          false,
}

// registered are the names of what an agent's collectors may ever show.
func registered(t *testing.T) []string {
	t.Helper()
	m, log := New(), slog.New(slog.DiscardHandler)
	m.Registry.MustRegister(
		newLocalEndpoints(func() *model.Table { return nil }),
		newPlaneMetrics(func() PlaneReader { return nil }, log))
	descriptions := make(chan *prometheus.Desc, 100)
	m.Registry.Describe(descriptions)
	close(descriptions)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	var names []string
	for d := range descriptions {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	return names
}

// TestEveryMetricOfKubeProxyIsAccountedFor compares what is registered and what
// is documented with kube-proxy's own list.
func TestEveryMetricOfKubeProxyIsAccountedFor(t *testing.T) {
	said := documented.Metrics(t, "../..")
	ours := registered(t)
	for name, here := range proxyMetrics {
		name = ProxySystem + "_" + name
		if slices.Contains(ours, name) != here {
			t.Errorf("%s: registered %t, want %t", name, !here, here)
		}
		if says, there := said[name]; !there || says != here {
			t.Errorf("%s: documented %t, as here %t, want %t", name, there, says, here)
		}
	}
	for _, name := range slices.Concat(ours, slices.Collect(maps.Keys(said))) {
		short, proxys := strings.CutPrefix(name, ProxySystem+"_")
		if _, known := proxyMetrics[short]; proxys && !known {
			t.Errorf("%s: kube-proxy has no such metric", name)
		}
	}
}
