package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/model"
)

// series is how many the metrics of requests have.
func series(t *testing.T, m *metrics) int {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range families {
		if f.GetName() == "fairway_gateway_requests_total" || f.GetName() == "fairway_gateway_request_seconds" {
			n += len(f.GetMetric())
		}
	}
	return n
}

// TestMetricsAreBounded: by Gateways' ports and classes of answers, whatever
// clients ask for; of Gateways that are gone, nothing is left.
func TestMetricsAreBounded(t *testing.T) {
	m := newMetrics()
	told := 0
	count := m.count(func(*native.Access) { told++ })
	table := func(names ...string) *model.Table {
		out := &model.Table{}
		for _, name := range names {
			out.Sockets = append(out.Sockets, &model.Socket{Name: name})
		}
		return out
	}
	m.applied(table("a:80", "b:80"), time.Millisecond)
	for i := range 1000 {
		count(&native.Access{Socket: []string{"a:80", "b:80"}[i%2], Status: 200 + 100*(i%4), Host: fmt.Sprint(i), Path: fmt.Sprint("/", i), Method: fmt.Sprint("M", i)})
	}
	if got := series(t, m); got != 2*2+2 { // i and the status have the same parity
		t.Errorf("%d series", got)
	}
	m.applied(table("b:80"), time.Millisecond)
	count(&native.Access{Socket: "a:80", Status: 200}) // it began before
	if got := series(t, m); got != 2+1 {
		t.Errorf("%d series once a Gateway is gone", got)
	}
	if told != 1001 {
		t.Errorf("%d requests were told of", told)
	}
}
