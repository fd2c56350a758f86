package kubeproxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/cpuset"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/tuning"
	"github.com/fairway-net/fairway/kube"
)

// Agent is what an agent is to do that c configures. What c leaves out is as
// base says, and so is what kube-proxy's configuration has no field for.
func Agent(c *Configuration, base agent.Config) (agent.Config, error) {
	if err := Validate(c); err != nil {
		return base, err
	}
	out := base
	if c.Mode != "" {
		out.Mode = string(c.Mode)
	}
	if name := strings.TrimSpace(c.HostnameOverride); name != "" {
		out.NodeName = strings.ToLower(name)
	}
	if a, err := netip.ParseAddr(c.BindAddress); err == nil && !a.IsUnspecified() {
		out.PrimaryAddress = a.Unmap()
	}
	if c.HealthzBindAddress != "" {
		out.HealthzAddress = c.HealthzBindAddress
	}
	if c.MetricsBindAddress != "" {
		out.MetricsAddress = c.MetricsBindAddress
	}
	out.RetryBind = out.RetryBind && !c.BindAddressHardFail
	out.Profiling = out.Profiling || c.EnableProfiling
	if c.OOMScoreAdj != nil {
		score := int(*c.OOMScoreAdj)
		out.OOMScoreAdj = &score
	}
	pages(c.FeatureGates, &out.ZPages)
	out.Conntrack = conntrackOf(c, base.Conntrack)
	planeOptions(c, &out)
	shown := *c
	out.Shown = map[string]any{"kubeproxy.config.k8s.io": shown}
	return out, meaning(c, &out)
}

// planeOptions takes what kube-proxy configures per mode.
func planeOptions(c *Configuration, out *agent.Config) {
	section := dataplane.SectionOf(out.Mode)
	period, least := c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod
	switch section {
	case dataplane.SectionNFTables:
		period, least = c.NFTables.SyncPeriod, c.NFTables.MinSyncPeriod
	case dataplane.SectionIPVS:
		period, least = c.IPVS.SyncPeriod, c.IPVS.MinSyncPeriod
	}
	if period.Duration > 0 {
		out.VerifyPeriod = period.Duration
	}
	// kube-proxy's default spares what its syncs cost.
	if d := least.Duration; d > 0 && (d != defaultMinSyncPeriod || section == dataplane.SectionIPVS) {
		out.MinPeriod = d
	}
	if c.IPTables.MasqueradeBit != nil { // ipvs mode has this bit too
		out.Plane.MasqueradeMark = 1 << *c.IPTables.MasqueradeBit
	}
	if section == dataplane.SectionIPVS {
		out.Plane.Scheduler = cmp.Or(c.IPVS.Scheduler, out.Plane.Scheduler)
		out.Plane.IPVS = ipvsOptions(c)
	}
}

// ipvsOptions are those of ipvs mode alone; c is valid.
func ipvsOptions(c *Configuration) kernel.IPVSOptions {
	o := kernel.IPVSOptions{
		TCP: c.IPVS.TCPTimeout.Duration, TCPFin: c.IPVS.TCPFinTimeout.Duration, UDP: c.IPVS.UDPTimeout.Duration,
		StrictARP: c.IPVS.StrictARP,
	}
	for _, text := range c.IPVS.ExcludeCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			o.Exclude = append(o.Exclude, p.Masked())
		}
	}
	return o
}

// meaning takes what decides where packets go.
func meaning(c *Configuration, out *agent.Config) error {
	switch dataplane.SectionOf(out.Mode) {
	case dataplane.SectionNFTables:
		out.Compile.MasqueradeAll = out.Compile.MasqueradeAll || c.NFTables.MasqueradeAll
	case dataplane.SectionIPTables, dataplane.SectionIPVS:
		out.Compile.MasqueradeAll = out.Compile.MasqueradeAll || c.IPTables.MasqueradeAll
	default:
		out.Compile.MasqueradeAll = out.Compile.MasqueradeAll || c.NFTables.MasqueradeAll || c.IPTables.MasqueradeAll
	}
	if len(c.NodePortAddresses) > 0 {
		selected, err := compile.ParseNodePortAddresses(c.NodePortAddresses)
		if err != nil {
			return fmt.Errorf("nodePortAddresses: %w", err)
		}
		out.Compile.NodePorts = selected
	}
	localhostNodePorts(c, out)
	prefixes, err := cidrs(c.ClusterCIDR)
	if err != nil {
		return fmt.Errorf("clusterCIDR: %w", err)
	}
	pods := &out.Compile.Pods
	switch c.DetectLocalMode {
	case clusterCIDR:
		pods.Prefixes = append(slices.Clone(pods.Prefixes), prefixes...)
	case nodeCIDR:
		out.Compile.PodsOfNode = true
	case bridgeInterface:
		pods.Interfaces = append(slices.Clone(pods.Interfaces), c.DetectLocal.BridgeInterface)
	case interfaceNamePrefix:
		pods.Interfaces = append(slices.Clone(pods.Interfaces), c.DetectLocal.InterfaceNamePrefix+"*")
	}
	return nil
}

// localhostNodePorts are served in iptables mode unless the field says no, and
// in the others where nodePortAddresses names loopback addresses (KEP-6032),
// but for "all": there, "all" never meant loopback.
func localhostNodePorts(c *Configuration, out *agent.Config) {
	if dataplane.SectionOf(out.Mode) == dataplane.SectionIPTables && c.IPTables.LocalhostNodePorts != nil {
		out.Compile.LocalhostNodePorts = *c.IPTables.LocalhostNodePorts
		return
	}
	for _, text := range c.NodePortAddresses {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if text == "localhost" || err == nil && p.Addr().IsLoopback() {
			out.Compile.LocalhostNodePorts = true
		}
	}
}

// conntrackOf is what to make of the node's connection tracking: the fields
// that are there, over what base says.
func conntrackOf(c *Configuration, base tuning.Conntrack) tuning.Conntrack {
	out, k := base, &c.Conntrack
	if k.MaxPerCore != nil {
		out.Max = int(*k.MaxPerCore) * machineCPUs()
		if out.Max > 0 && k.Min != nil {
			out.Max = max(out.Max, int(*k.Min))
		}
	}
	if k.TCPEstablishedTimeout != nil {
		out.TCPEstablished = k.TCPEstablishedTimeout.Duration
	}
	if k.TCPCloseWaitTimeout != nil {
		out.TCPCloseWait = k.TCPCloseWaitTimeout.Duration
	}
	out.TCPBeLiberal = out.TCPBeLiberal || k.TCPBeLiberal
	if d := k.UDPTimeout.Duration; d > 0 {
		out.UDP = d
	}
	if d := k.UDPStreamTimeout.Duration; d > 0 {
		out.UDPStream = d
	}
	return out
}

// machineCPUs is how many CPUs the machine has, as kube-proxy counts them
// (pkg/proxy/conntrack/sysctls.go, detectNumCPU): the table of connections is
// everybody's, whichever CPUs the agent may run on.
func machineCPUs() int {
	if n, err := cpuset.NumCPU(); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU() // where /sys isn't mounted
}

// API is how to reach the API that c names; master, if not "", in the place of
// the kubeconfig's server.
func API(c *Configuration, master string) (*rest.Config, error) {
	connection := &c.ClientConnection
	var api *rest.Config
	var err error
	if master == "" {
		api, err = kube.Config(connection.Kubeconfig)
	} else if api, err = clientcmd.BuildConfigFromFlags(master, connection.Kubeconfig); err == nil {
		api = kube.Tune(api)
	}
	if err != nil && connection.Kubeconfig == "" {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, or clientConnection.kubeconfig of --config: %w", err)
	}
	if connection.ContentType != "" {
		api.ContentType = connection.ContentType
	}
	if connection.AcceptContentTypes != "" {
		api.AcceptContentTypes = connection.AcceptContentTypes
	}
	if connection.QPS != 0 {
		api.QPS = connection.QPS
	}
	if connection.Burst != 0 {
		api.Burst = int(connection.Burst)
	}
	return api, nil
}
