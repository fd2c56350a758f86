package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/gateway"
	"github.com/fairway-net/fairway/ingress/tracing"
)

// Processes say which processes serve Gateways.
type Processes string

// The values of Processes.
const (
	ProcessPerGateway Processes = "gateway"
	OneProcess        Processes = "one"
)

func (p Processes) check(flag string) error {
	if p != ProcessPerGateway && p != OneProcess {
		return fmt.Errorf("%s %q: must be %s or %s", flag, string(p), ProcessPerGateway, OneProcess)
	}
	return nil
}

// gatewayGrace is how long idle connections may bring one more request when their
// socket is closed: longer than most clients wait between requests.
const gatewayGrace = 5 * time.Second

// Gateway is the configuration of an engine for Gateways and Ingresses.
type Gateway struct {
	Kubeconfig   string
	Only         string // the one Gateway of a process that another one has started
	Node         string
	Namespace    string
	Listen       string
	AccessLog    bool
	AccessFormat string
	AccessFields []string
	Traces       tracing.Options
	Exemplars    bool
	HTTP3        bool
	Trusted      []netip.Prefix
	ProxyFrom    []netip.Prefix
	Certificates []string
	PerClient    int
	Engine       string
	Handover     string
	Processes    Processes
	Delay        time.Duration
	Drain        time.Duration
}

// Add adds the flags.
func (g *Gateway) Add(flags *pflag.FlagSet) {
	AddKubeconfig(flags, &g.Kubeconfig)
	flags.StringVar(&g.Only, "only", "", "serve one Gateway, for the process that starts this")
	_ = flags.MarkHidden("only") // it fails only for a flag that isn't there
	flags.StringVar(&g.Node, "node-name", "", "name of the Node that this runs on; the machine's host name if not given")
	flags.StringVar(&g.Namespace, "namespace", metav1.NamespaceSystem, "namespace of the Lease that says that the node has an engine")
	flags.StringVar(&g.Listen, "metrics-bind-address", "127.0.0.1:10260", `host:port of /metrics, /healthz and /readyz; "" serves none`)
	flags.BoolVar(&g.AccessLog, "access-log", false, "write a line to standard output for every request")
	flags.StringVar(&g.AccessFormat, "access-log-format", string(gateway.AccessJSON), "form of the access log's lines: json, or combined, which is Apache's")
	flags.StringSliceVar(&g.AccessFields, "access-log-fields", nil, "fields of a line of JSON: "+strings.Join(gateway.AccessFieldNames(), ", ")+"; all but query, referer, trace and user_agent if not given")
	flags.StringVar(&g.Traces.Endpoint, "trace-endpoint", "", "host:port of an OpenTelemetry collector that takes OTLP over gRPC, to which requests are told as spans; \"\" makes no traces")
	flags.BoolVar(&g.Traces.TLS, "trace-tls", false, "speak TLS to --trace-endpoint")
	flags.Float64Var(&g.Traces.Share, "trace-share", 0.01, "share of requests that are told to --trace-endpoint, from 0 to 1; where a trusted proxy says which, as it says")
	flags.BoolVar(&g.Exemplars, "exemplars", false, "have fairway_gateway_request_seconds name a trace for each bucket, for those who ask for OpenMetrics")
	flags.Var(&CIDRs{List: &g.Trusted, Mask: true}, "trusted-proxy", "range of proxies in front, whose X-Forwarded-For is believed; may be repeated")
	flags.Var(&CIDRs{List: &g.ProxyFrom, Mask: true}, "proxy-protocol-from", "range of load balancers whose connections begin with a header of the PROXY protocol, v1 or v2; may be repeated")
	flags.BoolVar(&g.HTTP3, "http3", true, "serve HTTP/3 for Gateways and IngressClasses with the annotation fairway.dev/http3: \"true\"")
	flags.StringArrayVar(&g.Certificates, "certificate", nil, "certificate in files, for listeners and Ingresses that ask for one: HOST=CERTIFICATE,KEY, or CERTIFICATE,KEY for the hosts that it names, or a directory of NAME.crt and NAME.key; may be repeated")
	flags.IntVar(&g.PerClient, "max-connections-per-client", 0, "how many connections a client, an address or a /64 of IPv6, may have at a time, but for trusted proxies and load balancers; 0 lets all")
	flags.StringVar(&g.Engine, "engine", engines.Native, "what serves: native, in this program, or haproxy, which must be installed (2.6 or later)")
	flags.StringVar(&g.Handover, "handover", "@", `Unix socket where the listeners are handed to the next process: a path, or "@" and a name without a file; "@" alone is @fairway-gateway-NODE, "" is none`)
	flags.StringVar((*string)(&g.Processes), "processes", string(ProcessPerGateway), "gateway: each Gateway has a process of its own, and all Ingresses have one, so that none can bring down or starve another; one: a single process serves all")
	flags.DurationVar(&g.Delay, "shutdown-delay", 5*time.Second, "how long new connections are taken after SIGTERM, until load balancers know")
	flags.DurationVar(&g.Drain, "drain-timeout", time.Minute, "how long requests and WebSockets may go on after that, or when another process took over")
}

// Validate says what makes no sense, with the name of its flag.
func (g *Gateway) Validate() error {
	if g.Delay < 0 || g.Drain <= 0 {
		return fmt.Errorf("--shutdown-delay %s, --drain-timeout %s: must be positive", g.Delay, g.Drain)
	}
	if err := g.Processes.check("--processes"); err != nil {
		return err
	}
	if err := engines.Check(g.Engine); err != nil {
		return fmt.Errorf("--engine: %w", err)
	}
	if err := g.checkAccess(); err != nil {
		return err
	}
	if err := g.checkTraces(); err != nil {
		return err
	}
	if g.PerClient < 0 {
		return fmt.Errorf("--max-connections-per-client %d: must not be negative", g.PerClient)
	}
	return nil
}

func (g *Gateway) checkTraces() error {
	switch {
	case g.Traces.Endpoint == "" && g.Exemplars:
		return errors.New("--exemplars: there are no traces to name without --trace-endpoint")
	case g.Traces.Endpoint == "":
		return nil
	case g.Engine != engines.Native:
		return fmt.Errorf("--trace-endpoint: the %s engine makes no traces", g.Engine)
	case !(g.Traces.Share >= 0 && g.Traces.Share <= 1):
		return fmt.Errorf("--trace-share %v: must be from 0 to 1", g.Traces.Share)
	}
	if _, _, err := net.SplitHostPort(g.Traces.Endpoint); err != nil {
		return fmt.Errorf("--trace-endpoint: %w", err)
	}
	return nil
}

func (g *Gateway) checkAccess() error {
	format := gateway.AccessFormat(g.AccessFormat)
	if format != gateway.AccessJSON && format != gateway.AccessCombined {
		return fmt.Errorf("--access-log-format %q: must be %s or %s", g.AccessFormat, gateway.AccessJSON, gateway.AccessCombined)
	}
	if format != gateway.AccessJSON && len(g.AccessFields) > 0 {
		return fmt.Errorf("--access-log-fields: lines of the form %s have no fields to choose", format)
	}
	known := gateway.AccessFieldNames()
	for _, f := range g.AccessFields {
		if !slices.Contains(known, f) {
			return fmt.Errorf("--access-log-fields: there is no field %q: the fields are %s", f, strings.Join(known, ", "))
		}
	}
	return nil
}

// Config is what an engine is started with; what is wrong is an error that names its flag.
func (g *Gateway) Config() (gateway.Config, error) {
	config := gateway.Config{
		Node: g.Node, Namespace: g.Namespace, Listen: g.Listen, Kind: g.Engine, Handover: g.Handover, Delay: g.Delay,
		Certificates: g.Certificates, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if err := g.Validate(); err != nil {
		return config, err
	}
	if config.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return config, fmt.Errorf("find the node's name: %w", err)
		}
		config.Node = host
	}
	if g.Processes == ProcessPerGateway {
		config.Command = gateway.OwnProcess
	}
	if g.Handover == "@" {
		config.Handover = "@fairway-gateway-" + config.Node
	}
	config.Engine.PerClient, config.Engine.HTTP3, config.Engine.Trusted, config.Engine.ProxyFrom = g.PerClient, g.HTTP3, g.Trusted, g.ProxyFrom
	config.Traces, config.Exemplars = g.Traces, g.Exemplars
	config.Traces.Node = config.Node
	config.Engine.Drain, config.Engine.Grace = g.Drain, min(gatewayGrace, g.Drain)
	if g.AccessLog {
		config.Engine.Access = gateway.AccessLog(os.Stdout, gateway.AccessFormat(g.AccessFormat), g.AccessFields)
	}
	return config, nil
}
