package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/announce/speaker"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/model"
)

func agentCommand() *cobra.Command {
	var kubeconfig string
	flags := agentFlags{healthz: "0.0.0.0:10256", metrics: "127.0.0.1:10249", agentAddress: agentPort}
	proxy := &config.Flags{}
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run one node: watch the API and program the kernel; replaces kube-proxy, with its flags and configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case proxy.Version:
				fmt.Fprintln(cmd.OutOrStdout(), "Fairway", Version)
				return nil
			case proxy.Cleanup:
				job := cleanupJob{options: kernel.Options{StateDir: flags.stateDir, Cgroup: flags.cgroup}, kubeProxys: true, out: cmd.OutOrStdout()}
				return job.run(cmd.Context())
			}
			config, err := flags.agentConfig(cmd, proxy, kubeconfig)
			if err != nil || proxy.WriteTo != "" {
				return err
			}
			setAgentLogs(config.Log)
			if proxy.InitOnly {
				return agent.Init(cmd.Context(), config)
			}
			return runAgent(cmd.Context(), config, kubeconfig)
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; default the credentials of the pod that this runs in")
	flags.add(c.Flags())
	proxy.Add(c.Flags())
	c.Flags().BoolVar(&flags.watchPods, "dns-watch-pods", false, "with --dns: watch this node's pods, so that search paths of pods without a Service are resolved here too")
	return c
}

// agentPort is where agents of machines that joined answer API servers.
const agentPort = ":10261"

// agentAddressFlag says another address, or none.
const agentAddressFlag = "agent-bind-address"

// runAgent runs an agent until ctx is done. Where a server or a machine that has
// joined keeps the file of servers beside the kubeconfig, any of those will do.
func runAgent(ctx context.Context, config agent.Config, kubeconfig string) error {
	if kubeconfig == "" || config.API == nil {
		return agent.Run(ctx, config)
	}
	servers, err := balance.AttachLasting(config.API, kubeconfig, config.Log)
	if err != nil {
		return err
	}
	if servers == nil {
		return agent.Run(ctx, config)
	}
	client, err := kube.Client(config.API)
	if err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		servers.Run(looking, client)
	}()
	defer func() { stop(); <-done }()
	return agent.Run(ctx, config)
}

// agentFlags are the flags of an agent, as typed.
type agentFlags struct {
	nodeName, mode     string
	serviceCIDRs       []string
	clusterCIDRs       []string
	podInterfaces      []string
	nodePortAddresses  []string
	localhostNodePorts bool
	masqueradeAll      bool
	directReturn       bool
	register           bool
	announce           bool
	announceNamespace  string
	ignoreExcluded     bool
	ipForward          bool
	scheduler          string
	iptablesVariant    string
	stateDir           string
	cgroup             string
	verifyPeriod       time.Duration
	healthz, metrics   string
	agentAddress       string
	serviceMetrics     int
	endpointMetrics    int
	serviceBytes       bool
	verbose            bool
	level              slog.LevelVar
	podsOfNode         bool
	dns                bool
	dnsAddress         string
	dnsPort            uint16
	dnsClientCIDRs     []string
	dnsClients         []netip.Prefix // the same
	dnsOptions         dnsFlags
	watchPods          bool
	publish            agent.Publish
}

// add adds the flags of an agent on its own.
func (f *agentFlags) add(flags *pflag.FlagSet) {
	f.addRunning(flags)
	f.addServiceCIDRs(flags)
	flags.BoolVar(&f.register, "register-node", false, "create and maintain the Node object of this machine")
}

// addRunning adds the flags of an agent, alone or beside its API server.
func (f *agentFlags) addRunning(flags *pflag.FlagSet) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "localhost"
	}
	flags.StringVar(&f.nodeName, "node-name", strings.ToLower(hostname), "name of this machine's Node object")
	flags.Lookup("node-name").DefValue = "the host's name" // which help and manual pages can't know
	f.addMeaning(flags)
	flags.BoolVar(&f.ipForward, "ip-forward", true, "on a machine without a kubelet, turn on IP forwarding, so that others reach Services through it")
	flags.StringVar(&f.stateDir, "state-dir", kernel.DefaultStateDir, "directory for state that must outlive this process and isn't in the kernel")
	addCgroupFlag(flags, &f.cgroup)
	flags.DurationVar(&f.verifyPeriod, "sync-period", 30*time.Second, "interval of the periodic comparison with the kernel")
	flags.StringVar(&f.healthz, "healthz-bind-address", f.healthz, `host:port of /healthz and /livez; "" serves none`)
	flags.StringVar(&f.agentAddress, agentAddressFlag, f.agentAddress, "host:port at which a machine that makes its own Node answers Fairway's API servers, which ask for users of explain, doctor, trace and flows; \"\" is nowhere")
	flags.BoolVar(&f.announce, "announce", f.announce, "announce load balancer addresses of this node, as MetalLB's IPAddressPools and L2Advertisements say")
	addAnnounceNamespace(flags, "announce-namespace", &f.announceNamespace)
	flags.BoolVar(&f.ignoreExcluded, "ignore-exclude-lb", false, "announce also from a node with the label "+corev1.LabelNodeExcludeBalancers+", as kubeadm's control planes have")
	flags.BoolVar(&f.dns, "dns", f.dns, "serve the cluster's names on this node, at the address of the DNS Service")
	addClusterDNSFlag(flags, &f.dnsAddress)
	flags.Uint16Var(&f.dnsPort, "dns-node-port", 10053, "port at this node's address for other nodes whose DNS server fails; 0 for none")
	flags.StringSliceVar(&f.dnsClientCIDRs, "dns-node-port-clients", nil, "ranges that may ask at --dns-node-port; default private addresses and --cluster-cidr")
	f.dnsOptions.add(flags)
	flags.StringVar(&f.publish.Folder, "publish-dir", f.publish.Folder, `folder of published endpoints (fairway publish); "" publishes nothing`)
	flags.BoolVar(&f.publish.Drain, "drain", false, "when the agent stops, first drain this machine's published endpoints for --drain-time")
	flags.DurationVar(&f.publish.DrainTime, "drain-time", publish.DefaultDrainTime, "how long a removed endpoint still serves its connections")
	flags.StringVar(&f.metrics, "metrics-bind-address", f.metrics, `host:port of /metrics and /proxyMode; "" serves none`)
	flags.IntVar(&f.serviceMetrics, "service-metrics", metrics.DefaultServiceMetrics, "number of busiest Services with metrics of their own; 0 for none")
	flags.IntVar(&f.endpointMetrics, "endpoint-metrics", 0, "number of busiest endpoints with metrics of their own, if the mode counts them; 0 for none")
	flags.BoolVar(&f.serviceBytes, "service-bytes", false, "also count bytes for each Service, if the mode can; costs a little for every packet")
	flags.BoolVar(&f.verbose, "verbose", false, "log more")
}

// addMeaning adds the flags that decide what goes where and in which mode:
// those that make sense without an API too.
func (f *agentFlags) addMeaning(flags *pflag.FlagSet) {
	if f.mode == "" {
		f.mode = agent.AutoMode
	}
	flags.StringVar(&f.mode, "mode", f.mode, "data plane: auto, nftables, ebpf, ipvs, iptables or userspace")
	flags.StringSliceVar(&f.clusterCIDRs, "cluster-cidr", nil, "ranges of pod addresses")
	flags.StringSliceVar(&f.podInterfaces, "pod-interface", nil, "interfaces of pods; a trailing * matches the rest of a name")
	flags.BoolVar(&f.podsOfNode, "node-cidr", false, "the Node's own pod ranges are pod addresses too")
	flags.StringSliceVar(&f.nodePortAddresses, "nodeport-addresses", nil, `addresses of node ports: CIDRs, "primary", "localhost", "all"; default all`)
	flags.BoolVar(&f.localhostNodePorts, "localhost-nodeports", false, "node ports also answer at loopback addresses, if the mode can")
	flags.BoolVar(&f.masqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	flags.BoolVar(&f.directReturn, "direct-return", false, "direct server return: endpoints on other nodes answer outside clients directly, for Services without the annotation; needs support of the mode and the network")
	flags.StringVar(&f.iptablesVariant, "iptables-variant", "", "nft or legacy, for the modes that use iptables; default the one in use on this machine")
	flags.StringVar(&f.scheduler, "scheduler", "", "how endpoints are chosen for Services without the annotation (rr, wrr, lc, ...), if the mode has it")
}

// addCgroupFlag adds the flag for nodes that share a kernel.
func addCgroupFlag(flags *pflag.FlagSet, cgroup *string) {
	flags.StringVar(cgroup, "cgroup", "", "cgroup v2 directory whose sockets ebpf mode connects directly; default the root")
}

// addServiceCIDRs adds the flag that tells the ranges of cluster IPs, where no
// API server of ours knows them.
func (f *agentFlags) addServiceCIDRs(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.serviceCIDRs, "service-cidr", nil, "ranges of cluster IPs; packets to unserved addresses in them are refused")
}

// config is what the flags say.
func (f *agentFlags) config() (agent.Config, error) {
	config := agent.Config{
		NodeName: strings.ToLower(strings.TrimSpace(f.nodeName)), Mode: f.mode, VerifyPeriod: f.verifyPeriod,
		HealthzAddress: f.healthz, MetricsAddress: f.metrics, Register: f.register, ServiceMetrics: f.serviceMetrics, EndpointMetrics: f.endpointMetrics, Log: f.logger(),
	}
	config.ZPages.Version = Version
	if f.announce {
		config.Announce = &speaker.Options{Namespace: f.announceNamespace, Speakers: !f.register, IgnoreExcluded: f.ignoreExcluded}
	}
	config.Plane.CountBytes = f.serviceBytes
	config.Plane.Scheduler, config.Plane.StateDir, config.Plane.Cgroup = f.scheduler, f.stateDir, f.cgroup
	config.AgentAddress = f.agentAddress
	config.Socket = filepath.Join(config.Plane.StateDirectory(), agentlink.SocketName)
	config.Plane.IPTablesVariant = f.iptablesVariant
	if f.mode != agent.AutoMode {
		if _, err := dataplane.Find(f.mode); err != nil {
			return config, fmt.Errorf("--mode: %w", err)
		}
	}
	if !slices.Contains([]string{"", "nft", "legacy"}, f.iptablesVariant) {
		return config, fmt.Errorf("--iptables-variant: %q must be nft or legacy", f.iptablesVariant)
	}
	if s := model.Scheduler(f.scheduler); s != model.DefaultScheduler && !slices.Contains(model.Schedulers(), s) {
		return config, fmt.Errorf("--scheduler: %q must be one of %v", f.scheduler, model.Schedulers())
	}
	var err error
	if config.Compile.ServiceCIDRs, err = prefixes("service-cidr", f.serviceCIDRs); err != nil {
		return config, err
	}
	if f.dnsClients, err = prefixes("dns-node-port-clients", f.dnsClientCIDRs); err != nil {
		return config, err
	}
	if config.Compile.Pods.Prefixes, err = prefixes("cluster-cidr", f.clusterCIDRs); err != nil {
		return config, err
	}
	if config.Compile.NodePorts, err = compile.ParseNodePortAddresses(f.nodePortAddresses); err != nil {
		return config, fmt.Errorf("--nodeport-addresses: %w", err)
	}
	config.Compile.Pods.Interfaces = f.podInterfaces
	config.Compile.PodsOfNode = f.podsOfNode
	config.Compile.LocalhostNodePorts = f.localhostNodePorts
	config.Compile.MasqueradeAll = f.masqueradeAll
	config.Compile.DirectReturn = f.directReturn
	config.Publish = f.publish
	if config.Register {
		f.servePlainMachine(&config)
	}
	return config, nil
}

// servePlainMachine has a machine without a kubelet take other machines' packets
// to Services: it forwards, and masquerades them where nothing tells the packets
// of pods from them, since answers of endpoints would go another way.
func (f *agentFlags) servePlainMachine(config *agent.Config) {
	config.Forward = f.ipForward
	pods := config.Compile.Pods
	if len(pods.Prefixes) == 0 && len(pods.Interfaces) == 0 && !config.Compile.PodsOfNode {
		config.Compile.MasqueradeAll = true
	}
}

func (f *agentFlags) logger() *slog.Logger {
	if f.verbose {
		f.level.Set(slog.LevelDebug)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &f.level}))
}

// prefixes reads the values of a flag that takes CIDRs.
func prefixes(flag string, values []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, value := range values {
		p, err := netip.ParsePrefix(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not a CIDR such as 10.96.0.0/16", flag, value)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}
