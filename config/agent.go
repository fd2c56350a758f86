package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/announce/speaker"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/config/kubeproxy"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/dns/node"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/version"
	"github.com/fairway-net/fairway/model"
)

// Agent is the configuration of a node's agent, in the terms of its flags.
type Agent struct {
	NodeName, Mode     string
	ServiceCIDRs       []netip.Prefix
	ClusterCIDRs       []netip.Prefix
	PodInterfaces      []string
	PodsOfNode         bool
	NodePorts          compile.NodePortAddresses
	LocalhostNodePorts bool
	MasqueradeAll      bool
	DirectReturn       bool
	Scheduler          string
	IPTablesVariant    string
	XDP                string

	Register  bool // make the Node object of this machine
	IPForward bool
	StateDir  string
	Cgroup    string
	Publish   agent.Publish

	Announce          bool
	AnnounceNamespace string
	IgnoreExcluded    bool

	DNS        bool
	ClusterDNS netip.Addr // of the DNS Service; the range of cluster IPs implies it if not valid
	DNSPort    uint16
	DNSClients []netip.Prefix
	DNSOptions DNS
	WatchPods  bool

	VerifyPeriod     time.Duration
	Healthz, Metrics string
	AgentAddress     string
	ServiceMetrics   int
	EndpointMetrics  int
	ServiceBytes     bool
	Verbose          bool
	Level            slog.LevelVar

	// Kubeconfig and Proxy are of an agent on its own.
	Kubeconfig string
	Proxy      kubeproxy.Flags
}

// Validate says what makes no sense, with the name of its flag.
func (a *Agent) Validate() error {
	if a.Mode != agent.AutoMode {
		if _, err := dataplane.Find(a.Mode); err != nil {
			return fmt.Errorf("--mode: %w", err)
		}
	}
	if !slices.Contains([]string{"", "nft", "legacy"}, a.IPTablesVariant) {
		return fmt.Errorf("--iptables-variant: %q must be nft or legacy", a.IPTablesVariant)
	}
	if s := model.Scheduler(a.Scheduler); s != model.DefaultScheduler && !slices.Contains(model.Schedulers(), s) {
		return fmt.Errorf("--scheduler: %q must be one of %v", a.Scheduler, model.Schedulers())
	}
	if !slices.Contains(kernel.XDPModes(), kernel.XDPMode(a.XDP)) && a.XDP != "" {
		return fmt.Errorf("--xdp: %q must be one of %v", a.XDP, kernel.XDPModes())
	}
	for flag, n := range map[string]int{"service-metrics": a.ServiceMetrics, "endpoint-metrics": a.EndpointMetrics} {
		if n < 0 {
			return fmt.Errorf("--%s: %d must not be negative", flag, n)
		}
	}
	for flag, d := range map[string]time.Duration{"sync-period": a.VerifyPeriod, "drain-time": a.Publish.DrainTime} {
		if d < 0 {
			return fmt.Errorf("--%s: %s must not be negative", flag, d)
		}
	}
	return nil
}

// Config is what an agent is started with; what is wrong is an error that names its flag.
func (a *Agent) Config() (agent.Config, error) {
	config := agent.Config{
		NodeName: strings.ToLower(strings.TrimSpace(a.NodeName)), Mode: a.Mode, VerifyPeriod: a.VerifyPeriod,
		HealthzAddress: a.Healthz, MetricsAddress: a.Metrics, AgentAddress: a.AgentAddress, Register: a.Register,
		ServiceMetrics: a.ServiceMetrics, EndpointMetrics: a.EndpointMetrics, Publish: a.Publish, Log: a.logger(),
	}
	if err := a.Validate(); err != nil {
		return config, err
	}
	config.ZPages.Version = version.Version
	if a.Announce {
		config.Announce = &speaker.Options{Namespace: a.AnnounceNamespace, Speakers: !a.Register, IgnoreExcluded: a.IgnoreExcluded}
	}
	config.Plane.CountBytes, config.Plane.IPTablesVariant = a.ServiceBytes, a.IPTablesVariant
	config.Plane.XDP = kernel.XDPMode(a.XDP)
	config.Plane.Scheduler, config.Plane.StateDir, config.Plane.Cgroup = a.Scheduler, a.StateDir, a.Cgroup
	config.Socket = filepath.Join(config.Plane.StateDirectory(), agentlink.SocketName)
	config.Compile = compile.Config{
		ServiceCIDRs: a.ServiceCIDRs, NodePorts: a.NodePorts, LocalhostNodePorts: a.LocalhostNodePorts,
		MasqueradeAll: a.MasqueradeAll, DirectReturn: a.DirectReturn, PodsOfNode: a.PodsOfNode,
	}
	config.Compile.Pods.Prefixes, config.Compile.Pods.Interfaces = a.ClusterCIDRs, a.PodInterfaces
	if config.Register {
		a.ServePlainMachine(&config)
	}
	return config, nil
}

// ServePlainMachine has a machine without a kubelet take other machines' packets
// to Services: it forwards, and masquerades them where nothing tells the packets
// of pods from them, since answers of endpoints would go another way.
func (a *Agent) ServePlainMachine(config *agent.Config) {
	config.Forward = a.IPForward
	pods := config.Compile.Pods
	if len(pods.Prefixes) == 0 && len(pods.Interfaces) == 0 && !config.Compile.PodsOfNode {
		config.Compile.MasqueradeAll = true
	}
}

// ServeDNS is how the agent serves DNS at an address; nil if it doesn't.
func (a *Agent) ServeDNS(address netip.Addr) *node.Options {
	if !a.DNS {
		return nil
	}
	return &node.Options{Options: a.DNSOptions.Options, Addresses: []netip.Addr{address}, Port: a.DNSPort, Clients: a.DNSClients}
}

func (a *Agent) logger() *slog.Logger {
	if a.Verbose {
		a.Level.Set(slog.LevelDebug)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &a.Level}))
}
