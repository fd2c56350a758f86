package cmd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/gateway"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/kube"
)

// gatewayFlags are the flags of an engine for Gateways and Ingresses.
type gatewayFlags struct {
	node      string
	namespace string
	listen    string
	accessLog bool
	http3     bool
	trusted   []string
	proxies   []string
	certs     []string
	perClient int
	engine    string
	handover  string
	processes string
	delay     time.Duration
	drain     time.Duration
}

// gatewayGrace is how long idle connections may bring one more request when their
// socket is closed: longer than most clients wait between requests.
const gatewayGrace = 5 * time.Second

func gatewayCommand() *cobra.Command {
	var kubeconfig, only string
	var flags gatewayFlags
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Serve Gateways and Ingresses on this node: HTTP, gRPC, TLS",
		Long: `Serve Gateways and Ingresses on this node: HTTP, gRPC, TLS.

A second one that is started takes over from the first, without a connection being
refused: the listening sockets are handed to it once it knows all routes. SIGUSR2
starts the program anew, as it is on disk then, for that purpose.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := flags.config()
			if err != nil {
				return err
			}
			if config.API, err = kube.Config(kubeconfig); err != nil {
				return err
			}
			ctx := cmd.Context()
			config.Lean = true
			if only != "" {
				signal.Ignore(syscall.SIGUSR2) // it is for the one that has started this
				if ctx, err = config.Member(ctx, only); err != nil {
					return err
				}
				return gateway.Run(ctx, config)
			}
			upgrade := make(chan os.Signal, 1)
			signal.Notify(upgrade, syscall.SIGUSR2)
			defer signal.Stop(upgrade)
			config.Upgrade = upgrade
			return gateway.Run(ctx, config)
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; default the credentials of the pod that this runs in")
	c.Flags().StringVar(&only, "only", "", "serve one Gateway, for the process that starts this")
	_ = c.Flags().MarkHidden("only") // it fails only for a flag that isn't there
	flags.add(c.Flags())
	c.AddCommand(gatewayControllerCommand())
	return c
}

func (f *gatewayFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.node, "node-name", "", "name of the Node that this runs on; the machine's host name if not given")
	flags.StringVar(&f.namespace, "namespace", metav1.NamespaceSystem, "namespace of the Lease that says that the node has an engine")
	flags.StringVar(&f.listen, "metrics-bind-address", "127.0.0.1:10260", `host:port of /metrics, /healthz and /readyz; "" serves none`)
	flags.BoolVar(&f.accessLog, "access-log", false, "write a line of JSON to standard output for every request")
	flags.StringSliceVar(&f.trusted, "trusted-proxy", nil, "range of proxies in front, whose X-Forwarded-For is believed; may be repeated")
	flags.StringSliceVar(&f.proxies, "proxy-protocol-from", nil, "range of load balancers whose connections begin with a header of the PROXY protocol, v1 or v2; may be repeated")
	flags.BoolVar(&f.http3, "http3", true, "serve HTTP/3 for Gateways and IngressClasses with the annotation fairway.dev/http3: \"true\"")
	flags.StringArrayVar(&f.certs, "certificate", nil, "certificate in files, for listeners and Ingresses that ask for one: HOST=CERTIFICATE,KEY, or CERTIFICATE,KEY for the hosts that it names, or a directory of NAME.crt and NAME.key; may be repeated")
	flags.IntVar(&f.perClient, "max-connections-per-client", 0, "how many connections a client, an address or a /64 of IPv6, may have at a time, but for trusted proxies and load balancers; 0 lets all")
	flags.StringVar(&f.engine, "engine", engines.Native, "what serves: native, in this program, or haproxy, which must be installed (2.6 or later)")
	flags.StringVar(&f.handover, "handover", "@", `Unix socket where the listeners are handed to the next process: a path, or "@" and a name without a file; "@" alone is @fairway-gateway-NODE, "" is none`)
	flags.StringVar(&f.processes, "processes", processesPerGateway, "gateway: each Gateway has a process of its own, and all Ingresses have one, so that none can bring down or starve another; one: a single process serves all")
	flags.DurationVar(&f.delay, "shutdown-delay", 5*time.Second, "how long new connections are taken after SIGTERM, until load balancers know")
	flags.DurationVar(&f.drain, "drain-timeout", time.Minute, "how long requests and WebSockets may go on after that, or when another process took over")
}

func (f *gatewayFlags) config() (gateway.Config, error) {
	config := gateway.Config{Node: f.node, Namespace: f.namespace, Listen: f.listen, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if config.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return config, fmt.Errorf("find the node's name: %w", err)
		}
		config.Node = host
	}
	if f.delay < 0 || f.drain <= 0 {
		return config, fmt.Errorf("--shutdown-delay %s, --drain-timeout %s: must be positive", f.delay, f.drain)
	}
	switch f.processes {
	case processesPerGateway:
		config.Command = gatewayProcess
	case oneProcess:
	default:
		return config, fmt.Errorf("--processes %q: must be %s or %s", f.processes, processesPerGateway, oneProcess)
	}
	if err := engines.Check(f.engine); err != nil {
		return config, fmt.Errorf("--engine: %w", err)
	}
	config.Kind = f.engine
	if config.Engine.PerClient = f.perClient; f.perClient < 0 {
		return config, fmt.Errorf("--max-connections-per-client %d: must not be negative", f.perClient)
	}
	config.Delay, config.Engine.Drain, config.Engine.Grace = f.delay, f.drain, min(gatewayGrace, f.drain)
	if config.Handover = f.handover; f.handover == "@" {
		config.Handover = "@fairway-gateway-" + config.Node
	}
	config.Engine.HTTP3, config.Certificates = f.http3, f.certs
	var err error
	if config.Engine.Trusted, err = gatewayRanges("--trusted-proxy", f.trusted); err != nil {
		return config, err
	}
	if config.Engine.ProxyFrom, err = gatewayRanges("--proxy-protocol-from", f.proxies); err != nil {
		return config, err
	}
	if f.accessLog {
		config.Engine.Access = accessLog(slog.New(slog.NewJSONHandler(os.Stdout, nil)))
	}
	return config, nil
}

// The values of --processes.
const (
	processesPerGateway = "gateway"
	oneProcess          = "one"
)

// gatewayProcess is this program once more, whatever is on disk by now, for one
// Gateway.
func gatewayProcess(gateway types.NamespacedName) *exec.Cmd {
	c := exec.Command("/proc/self/exe", append(os.Args[1:], "--only", gateway.String())...)
	c.Args[0] = os.Args[0]
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c
}

// gatewayRanges reads the ranges of a flag.
func gatewayRanges(flag string, texts []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a CIDR such as 192.0.2.0/24", flag, text)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// accessLog writes a line for every request.
func accessLog(log *slog.Logger) func(*model.Access) {
	return func(a *model.Access) {
		log.Info("request", "client", a.Client, "method", a.Method, "host", a.Host, "path", a.Path, "protocol", a.Protocol,
			"status", a.Status, "bytes", a.Bytes, "seconds", a.Took.Seconds(), "socket", a.Socket, "route", a.Route, "rule", a.Rule,
			"endpoint", a.Endpoint, "reason", a.Reason)
	}
}
