package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/model"
)

// metrics are bounded in number: by Gateway and kind of answer, not by host or path.
type metrics struct {
	registry  *prometheus.Registry
	gatherer  prometheus.Gatherer // what is told
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	applying  prometheus.Histogram
	sockets   prometheus.Gauge
	pools     prometheus.Gauge
	ready     atomic.Bool
	exemplars bool         // requests' seconds name traces
	unserved  http.Handler // nil tells nothing of ports that could not be opened
	mu        sync.RWMutex
	known     map[string]*portMetrics // of ports in the table
	listener  net.Listener            // nil until it is served, or if it isn't
	server    *http.Server
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairway_gateway_requests_total", Help: "Requests, by the Gateway's port and the class of the answer.",
		}, []string{"socket", "class"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairway_gateway_request_seconds", Help: "How long requests took, by the Gateway's port.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"socket"}),
		applying: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairway_gateway_sync_seconds", Help: "How long it took to compile and apply a change.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1},
		}),
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairway_gateway_sockets", Help: "Ports of Gateways in the table."}),
		pools:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairway_gateway_pools", Help: "Backends in the table."}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.applying, m.sockets, m.pools,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gatherer = m.registry
	return m
}

// count makes a function that counts a request and tells it to next, if any.
func (m *metrics) count(next func(*native.Access)) func(*native.Access) {
	return func(a *native.Access) {
		if p := m.of(a.Socket); p != nil {
			p.count(m, a)
		}
		if next != nil {
			next(a)
		}
	}
}

// countBy has requests counted by an engine that counts them itself.
func (m *metrics) countBy(requests func() (map[string]map[string]uint64, error), log *slog.Logger) {
	m.registry.Unregister(m.requests)
	m.registry.Unregister(m.seconds)
	m.registry.MustRegister(&counts{requests, log})
}

// counts are requests as an engine counts them.
type counts struct {
	requests func() (map[string]map[string]uint64, error)
	log      *slog.Logger
}

var countedRequests = prometheus.NewDesc("fairway_gateway_requests_total", "Requests, by the Gateway's port and the class of the answer.", []string{"socket", "class"}, nil)

func (c *counts) Describe(to chan<- *prometheus.Desc) { to <- countedRequests }

func (c *counts) Collect(to chan<- prometheus.Metric) {
	sockets, err := c.requests()
	if err != nil {
		c.log.Warn("requests could not be counted", "error", err)
		return
	}
	for socket, classes := range sockets {
		for class, n := range classes {
			to <- prometheus.MustNewConstMetric(countedRequests, prometheus.CounterValue, float64(n), socket, class)
		}
	}
}

func (m *metrics) applied(t *model.Table, took time.Duration) {
	m.applying.Observe(took.Seconds())
	m.sockets.Set(float64(len(t.Sockets)))
	m.pools.Set(float64(len(t.Pools)))
	m.forget(t)
	m.ready.Store(true)
}

// forget drops the metrics of ports that were in the table before and aren't now,
// so that Gateways that come and go leave nothing behind.
func (m *metrics) forget(t *model.Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[string]*portMetrics, len(t.Sockets))
	for _, s := range t.Sockets {
		if now[s.Name] = m.known[s.Name]; now[s.Name] == nil {
			now[s.Name] = &portMetrics{socket: s.Name}
		}
	}
	for name := range m.known {
		if now[name] == nil {
			m.requests.DeletePartialMatch(prometheus.Labels{"socket": name})
			m.seconds.DeletePartialMatch(prometheus.Labels{"socket": name})
		}
	}
	m.known = now
}

// of are the metrics of a port; nil if it isn't in the table. Requests that outlive
// theirs are not counted.
func (m *metrics) of(socket string) *portMetrics {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.known[socket]
}

// portMetrics are those of one port, found once: looking for them by their labels
// costs as much as counting ten requests.
type portMetrics struct {
	socket  string
	once    sync.Once
	seconds prometheus.Observer
	classes [6]atomic.Pointer[prometheus.Counter] // by the first digit of the status
}

func (p *portMetrics) count(m *metrics, a *native.Access) {
	p.once.Do(func() { p.seconds = m.seconds.WithLabelValues(p.socket) })
	if x, can := p.seconds.(prometheus.ExemplarObserver); can && m.exemplars && a.Trace != "" {
		x.ObserveWithExemplar(a.Took.Seconds(), prometheus.Labels{"trace_id": a.Trace})
	} else {
		p.seconds.Observe(a.Took.Seconds())
	}
	class := a.Status / 100
	if class < 0 || class >= len(p.classes) {
		m.requests.WithLabelValues(p.socket, fmt.Sprintf("%dxx", class)).Inc()
		return
	}
	counter := p.classes[class].Load()
	if counter == nil {
		one := m.requests.WithLabelValues(p.socket, fmt.Sprintf("%dxx", class))
		counter = &one
		p.classes[class].Store(counter)
	}
	(*counter).Inc()
}

// serve serves /healthz, /readyz and /metrics until close. The listener is one
// that was taken over, or nil.
func (m *metrics) serve(address string, inherited *net.TCPListener, successor func() bool, log *slog.Logger) error {
	if address == "" {
		return nil
	}
	var l net.Listener = inherited
	if inherited == nil {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			return fmt.Errorf("serve health and metrics: %w", err)
		}
	}
	m.serveAt(l, successor, log)
	return nil
}

// serveAt serves them at a listener.
func (m *metrics) serveAt(l net.Listener, successor func() bool, log *slog.Logger) {
	m.listener = l
	mux := http.NewServeMux()
	if m.unserved != nil {
		mux.Handle("/unserved", m.unserved)
	}
	mux.Handle("/metrics", promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{EnableOpenMetrics: m.exemplars}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case !m.ready.Load():
			http.Error(w, "the first table isn't complete", http.StatusServiceUnavailable)
		case successor(): // who asks may mean that one
			http.Error(w, "another process is about to take over", http.StatusServiceUnavailable)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() {
		if err := m.server.Serve(m.listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health and metrics are no longer served", "error", err)
		}
	}()
}

func (m *metrics) close() {
	if m.server != nil {
		_ = m.server.Close() // nothing is lost by an error
	}
}
