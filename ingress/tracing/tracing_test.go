package tracing

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/fairway-net/fairway/ingress/model"
)

const (
	parentID = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled  = "00-" + parentID + "-00f067aa0ba902b7-01"
	left     = "00-" + parentID + "-00f067aa0ba902b7-00"
)

// TestBegin: who is believed that a request is told of, and what endpoints get.
func TestBegin(t *testing.T) {
	for name, test := range map[string]struct {
		share     float64
		parent    string
		trusted   bool
		told      bool
		continues bool
	}{
		"all, no parent":                    {1, "", false, true, false},
		"none, no parent":                   {0, "", false, false, false},
		"a client asks":                     {0, sampled, false, false, true},
		"a client asks not to":              {1, left, false, true, true},
		"a trusted proxy asks":              {0, sampled, true, true, true},
		"a trusted proxy asks not to":       {1, left, true, false, true},
		"a parent that is none":             {1, "00-zz", false, true, false},
		"a parent that is none, of a proxy": {1, "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewInMemoryExporter()
			tracer := newTracer(Options{Share: test.share, Node: "n"}, sdktrace.WithSyncer(spans))
			h := http.Header{}
			if test.parent != "" {
				h.Set("Traceparent", test.parent)
			}
			end := tracer.Begin(h, test.trusted)
			a := &model.Access{Method: "GET", Route: "HTTPRoute shop/web", Path: "/x", Query: "secret", Status: 502, Reason: "no endpoint"}
			end(a)
			got := spans.GetSpans()
			parts := strings.Split(h.Get("Traceparent"), "-")
			if len(parts) != 4 || (parts[1] == parentID) != test.continues || parts[2] == "00f067aa0ba902b7" || (parts[3] == "01") != test.told {
				t.Errorf("endpoints get %q", h.Get("Traceparent"))
			}
			if (len(got) == 1) != test.told || (a.Trace != "") != test.told {
				t.Fatalf("told of %d spans, trace %q", len(got), a.Trace)
			}
			if test.told && (got[0].Name != "GET HTTPRoute shop/web" || got[0].Status.Description != "no endpoint" || a.Trace != parts[1]) {
				t.Errorf("the span is %+v", got[0])
			}
			if err := tracer.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// received is a collector.
type received struct {
	collector.UnimplementedTraceServiceServer
	spans chan string
}

func (r *received) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, of := range q.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans <- s.GetName() + " " + s.GetStatus().GetMessage()
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collected is a collector, and a tracer that tells it of every request.
func collected(t *testing.T) (*received, *Tracer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, s := &received{spans: make(chan string, 8)}, grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	go func() { _ = s.Serve(l) }() // until it is stopped
	t.Cleanup(s.Stop)
	tracer, err := New(t.Context(), Options{Endpoint: l.Addr().String(), Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r, tracer
}

// TestCollector: a collector is told, at the latest when the process ends. One that is away
// holds up nobody.
func TestCollector(t *testing.T) {
	r, tracer := collected(t)
	tracer.Begin(http.Header{}, false)(&model.Access{Method: "GET", Status: 503, Reason: "no endpoint"})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-r.spans; got != "GET no endpoint" {
		t.Errorf("the collector gets %q", got)
	}
	away, err := New(t.Context(), Options{Endpoint: "127.0.0.1:1", Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 10000 {
		away.Begin(http.Header{}, false)(&model.Access{Method: "GET"})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := away.Close(ended); err == nil {
		t.Error("nothing is said of lost traces")
	}
}

// TestHostileRequest: what a client writes doesn't keep the spans of others from the collector, and a
// method that nobody knows names no span.
func TestHostileRequest(t *testing.T) {
	r, tracer := collected(t)
	long := strings.Repeat("ä", 1<<20)
	for _, a := range []model.Access{
		{Method: "GET", Reason: "another's"}, {Method: "BREW-\xff", Path: "/\xff" + long, Host: "\xfe", UserAgent: "\xc3" + long, Reason: "\xff"},
	} {
		a.Status = http.StatusBadGateway
		tracer.Begin(http.Header{}, false)(&a)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(r.spans)
	var got []string
	for one := range r.spans {
		got = append(got, one)
	}
	if want := []string{"GET another's", "HTTP \uFFFD"}; !slices.Equal(got, want) {
		t.Errorf("the collector gets %q, want %q", got, want)
	}
}
