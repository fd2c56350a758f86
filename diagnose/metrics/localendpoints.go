package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// localEndpoints tells how many Services with a Local traffic policy have no
// endpoint on this node, as kube-proxy does. They are counted when somebody
// asks, and again only if the table is another one by then.
type localEndpoints struct {
	table       func() *model.Table // the one in force
	description *prometheus.Desc

	mu      sync.Mutex
	counted *model.Table
	counts  map[[2]string]int // by family and policy
}

func newLocalEndpoints(table func() *model.Table) *localEndpoints {
	return &localEndpoints{table: table, description: prometheus.NewDesc(ProxySystem+"_sync_proxy_rules_no_local_endpoints_total",
		"Services with a Local traffic policy and no endpoint on this node.", []string{familyLabel, "traffic_policy"}, nil)}
}

// Describe is part of prometheus.Collector.
func (l *localEndpoints) Describe(out chan<- *prometheus.Desc) { out <- l.description }

// Collect is part of prometheus.Collector.
func (l *localEndpoints) Collect(out chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	table := l.table()
	if table == nil {
		return
	}
	if table != l.counted {
		l.counted, l.counts = table, countLocal(table)
	}
	for _, family := range familiesOf(table) {
		for _, policy := range []string{"internal", "external"} {
			out <- prometheus.MustNewConstMetric(l.description, prometheus.GaugeValue, float64(l.counts[[2]string{family, policy}]), family, policy)
		}
	}
}

// countLocal counts Services of which a port's pool for this node's endpoints
// only is empty. Where the port's other endpoints are known and there are none,
// it is not the policy's doing.
func countLocal(t *model.Table) map[[2]string]int {
	type key struct {
		family, policy string
		service        types.NamespacedName
	}
	found := map[key]bool{}
	for f := range t.Frontends() {
		policy, family := "external", "IPv4"
		if f.FrontendType == model.ClusterIP {
			policy = "internal"
		}
		if f.Addr.Is6() {
			family = "IPv6"
		}
		for _, r := range f.Routes {
			if !r.Pool.Local {
				continue
			}
			everywhere := r.Pool
			everywhere.Local = false
			local, all := t.Pool(r.Pool), t.Pool(everywhere)
			if local != nil && len(local.Backends) == 0 && (all == nil || len(all.Backends) > 0) {
				found[key{family, policy, compile.ServiceOf(f.Name)}] = true
			}
		}
	}
	counts := map[[2]string]int{}
	for k := range found {
		counts[[2]string{k.family, k.policy}]++
	}
	return counts
}
