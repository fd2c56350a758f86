// Package tracing tells a collector of OpenTelemetry of requests: one span for each, of
// kind server, in the trace that a traceparent header names (W3C Trace Context), and
// endpoints get a traceparent that names the span. All of it is the library's.
package tracing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairway-net/fairway/ingress/model"
)

// Options say where traces go, and of which requests; the zero value makes none.
type Options struct {
	// Endpoint is the host:port of a collector that takes OTLP over gRPC; "" makes no traces.
	Endpoint string
	// TLS has the collector show a certificate that the system's authorities vouch for.
	TLS bool
	// Share of requests that are told of, from 0 to 1. A trusted proxy's word of that counts
	// more; a client's doesn't count.
	Share float64
	// Node is where the gateway runs.
	Node string
}

// Tracer makes spans.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	share    float64
}

// New connects to the collector once there is something to tell. While it is away, what
// doesn't fit into a queue is lost, and requests go on.
func New(ctx context.Context, o Options) (*Tracer, error) {
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(o.Endpoint)}
	if !o.TLS {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", o.Endpoint, err)
	}
	return newTracer(o, sdktrace.WithBatcher(exporter)), nil
}

func newTracer(o Options, to sdktrace.TracerProviderOption) *Tracer {
	about := resource.NewSchemaless(attribute.String("service.name", "fairway-gateway"), attribute.String("k8s.node.name", o.Node))
	// Whether a request is told of is settled in Begin.
	provider := sdktrace.NewTracerProvider(to, sdktrace.WithResource(about), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Share))))
	return &Tracer{provider: provider, tracer: provider.Tracer("fairway.dev/gateway"), share: o.Share}
}

// headers are those that say which trace a request belongs to.
var headers = propagation.TraceContext{}

// Begin begins the span of a request, of which its headers tell from now on, and returns
// what ends it.
func (t *Tracer) Begin(h http.Header, trusted bool) func(*model.Access) {
	ctx := headers.Extract(context.Background(), propagation.HeaderCarrier(h))
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !trusted {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.WithTraceFlags(trace.TraceFlags(0).WithSampled(rand.Float64() < t.share)))
	}
	ctx, span := t.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	headers.Inject(ctx, propagation.HeaderCarrier(h))
	if !span.IsRecording() {
		return func(*model.Access) { span.End() }
	}
	return func(a *model.Access) {
		a.Trace = span.SpanContext().TraceID().String()
		describe(span, a)
		span.End()
	}
}

// describe names what OpenTelemetry's conventions for HTTP name. Queries may have
// secrets, and are left out.
func describe(span trace.Span, a *model.Access) {
	method, name := a.Method, a.Method
	if !slices.Contains(methods, method) {
		method, name = "_OTHER", "HTTP"
		span.SetAttributes(attribute.String("http.request.method_original", valid(a.Method)))
	}
	if a.Route != "" {
		name += " " + a.Route
	}
	span.SetName(name)
	span.SetAttributes(
		attribute.String("http.request.method", method), attribute.String("url.path", valid(a.Path)), attribute.String("server.address", valid(a.Host)),
		attribute.String("client.address", a.Client.String()), attribute.Int("http.response.status_code", a.Status), attribute.Int64("http.response.body.size", a.Bytes),
		attribute.String("user_agent.original", valid(a.UserAgent)), attribute.String("fairway.socket", a.Socket), attribute.String("fairway.rule", a.Rule),
	)
	if a.Endpoint != "" {
		span.SetAttributes(attribute.String("network.peer.address", a.Endpoint))
	}
	if a.Status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, valid(a.Reason))
	}
}

// methods are those that the conventions know. Names of spans are few: a client doesn't choose them.
var methods = []string{
	http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace,
}

// mostText is how many bytes are told of what a client wrote: collectors refuse messages of more
// than 4 MB, and a message has up to 512 spans.
const mostText = 1024

// valid is a text that a client may have written, as OTLP takes it. One that isn't UTF-8 would
// have all spans of its message lost.
func valid(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), mostText)], "\uFFFD")
}

// Close tells the collector what it hasn't been told.
func (t *Tracer) Close(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("end traces: %w", err)
	}
	return nil
}
