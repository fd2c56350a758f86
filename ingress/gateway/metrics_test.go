package gateway

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
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

// TestExemplars: with them, a process names a trace for a bucket, and its supervisor hands
// that on; without, nobody does.
func TestExemplars(t *testing.T) {
	for _, on := range []bool{false, true} {
		m := newMetrics()
		m.exemplars = on
		m.applied(&model.Table{Sockets: []*model.Socket{{Name: "a:80"}}}, time.Millisecond)
		m.count(nil)(&native.Access{Socket: "a:80", Status: 200, Took: 3 * time.Millisecond, Trace: "4bf92f3577b34da6a3ce929d0e0e4736"})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m.serveAt(l, func() bool { return false }, slog.Default())
		t.Cleanup(m.close)
		ask := func(accept string) []byte {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Accept", accept)
			response, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		if text := string(ask("application/openmetrics-text; version=1.0.0")); strings.Contains(text, `# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"}`) != on {
			t.Errorf("exemplars %t: %s", on, text)
		}
		all, err := families(ask(string(protobuf)))
		if err != nil {
			t.Fatal(err)
		}
		named := false
		for _, b := range all["fairway_gateway_request_seconds"].GetMetric()[0].GetHistogram().GetBucket() {
			named = named || b.GetExemplar() != nil
		}
		if named != on || len(all) < 5 {
			t.Errorf("exemplars %t: the supervisor reads %v", on, all)
		}
	}
}

// TestHostileMetrics: what a process says of itself, which strangers' requests may have taken over,
// doesn't end its supervisor.
func TestHostileMetrics(t *testing.T) {
	for _, size := range []uint64{1 << 40, 1 << 63} {
		if _, err := families(binary.AppendUvarint(nil, size)); err == nil {
			t.Errorf("a metric of %d bytes is taken", size)
		}
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "report"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for range 2 * mostReport / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	c := &child{address: l.Addr().String()}
	if text, err := c.ask("/metrics"); err == nil {
		t.Errorf("%d bytes are taken", len(text))
	}
}
