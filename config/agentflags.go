package config

import (
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/internal/kernel"
)

// AgentAddressFlag says where agents of machines that joined answer API servers, or nowhere.
const AgentAddressFlag = "agent-bind-address"

// Add adds the flags of an agent on its own, kube-proxy's among them.
func (a *Agent) Add(flags *pflag.FlagSet) {
	AddKubeconfig(flags, &a.Kubeconfig)
	a.AddRunning(flags)
	a.AddServiceCIDRs(flags)
	flags.BoolVar(&a.Register, "register-node", false, "create and maintain the Node object of this machine")
	flags.BoolVar(&a.WatchPods, "dns-watch-pods", false, "with --dns: watch this node's pods, so that search paths of pods without a Service are resolved here too")
	a.Proxy.Add(flags)
}

// AddKubeconfig adds the flag of roles that may run in a pod.
func AddKubeconfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "kubeconfig", "", "kubeconfig file; default the credentials of the pod that this runs in")
}

// AddRunning adds the flags of an agent, alone or beside its API server.
func (a *Agent) AddRunning(flags *pflag.FlagSet) {
	flags.StringVar(&a.NodeName, "node-name", a.NodeName, "name of this machine's Node object")
	flags.Lookup("node-name").DefValue = "the host's name" // which help and manual pages can't know
	a.AddMode(flags)
	a.AddMeaning(flags)
	flags.BoolVar(&a.IPForward, "ip-forward", true, "on a machine without a kubelet, turn on IP forwarding, so that others reach Services through it")
	flags.StringVar(&a.StateDir, "state-dir", kernel.DefaultStateDir, "directory for state that must outlive this process and isn't in the kernel")
	AddCgroup(flags, &a.Cgroup)
	flags.DurationVar(&a.VerifyPeriod, "sync-period", 30*time.Second, "interval of the periodic comparison with the kernel")
	flags.StringVar(&a.Healthz, "healthz-bind-address", a.Healthz, `host:port of /healthz and /livez; "" serves none`)
	flags.StringVar(&a.AgentAddress, AgentAddressFlag, a.AgentAddress, "host:port at which a machine that makes its own Node answers Fairway's API servers, which ask for users of explain, doctor, trace and flows; \"\" is nowhere")
	flags.BoolVar(&a.Announce, "announce", a.Announce, "announce load balancer addresses of this node, as MetalLB's IPAddressPools and L2Advertisements say")
	AddAnnounceNamespace(flags, "announce-namespace", &a.AnnounceNamespace)
	flags.BoolVar(&a.IgnoreExcluded, "ignore-exclude-lb", false, "announce also from a node with the label "+corev1.LabelNodeExcludeBalancers+", as kubeadm's control planes have")
	flags.BoolVar(&a.DNS, "dns", a.DNS, "serve the cluster's names on this node, at the address of the DNS Service")
	AddClusterDNS(flags, &a.ClusterDNS)
	flags.Uint16Var(&a.DNSPort, "dns-node-port", 10053, "port at this node's address for other nodes whose DNS server fails; 0 for none")
	flags.Var(&CIDRs{List: &a.DNSClients, Mask: true}, "dns-node-port-clients", "ranges that may ask at --dns-node-port; default private addresses and --cluster-cidr")
	a.DNSOptions.Add(flags)
	flags.StringVar(&a.Publish.Folder, "publish-dir", a.Publish.Folder, `folder of published endpoints (fairway publish); "" publishes nothing`)
	flags.BoolVar(&a.Publish.Drain, "drain", false, "when the agent stops, first drain this machine's published endpoints for --drain-time")
	flags.DurationVar(&a.Publish.DrainTime, "drain-time", publish.DefaultDrainTime, "how long a removed endpoint still serves its connections")
	flags.StringVar(&a.Metrics, "metrics-bind-address", a.Metrics, `host:port of /metrics and /proxyMode; "" serves none`)
	flags.IntVar(&a.ServiceMetrics, "service-metrics", metrics.DefaultServiceMetrics, "number of busiest Services with metrics of their own; 0 for none")
	flags.IntVar(&a.EndpointMetrics, "endpoint-metrics", 0, "number of busiest endpoints with metrics of their own, if the mode counts them; 0 for none")
	flags.BoolVar(&a.ServiceBytes, "service-bytes", false, "also count bytes for each Service, if the mode can; costs a little for every packet")
	flags.StringVar(&a.XDP, "xdp", string(kernel.XDPOff), "ebpf mode: forward packets of known connections in the drivers of interfaces with outside traffic: off, auto (where a driver offers it), native (the same, with a warning where none does)")
	flags.BoolVar(&a.Verbose, "verbose", false, "log more")
}

// AddMode adds the flags that say how a data plane does it.
func (a *Agent) AddMode(flags *pflag.FlagSet) {
	flags.StringVar(&a.Mode, "mode", a.Mode, "data plane: auto, nftables, ebpf, ipvs, iptables or userspace")
	flags.StringVar(&a.IPTablesVariant, "iptables-variant", "", "nft or legacy, for the modes that use iptables; default the one in use on this machine")
	flags.StringVar(&a.Scheduler, "scheduler", "", "how endpoints are chosen for Services without the annotation (rr, wrr, lc, ...), if the mode has it")
}

// AddMeaning adds the flags that decide what goes where, in every mode.
func (a *Agent) AddMeaning(flags *pflag.FlagSet) {
	flags.Var(&CIDRs{List: &a.ClusterCIDRs, Mask: true}, "cluster-cidr", "ranges of pod addresses")
	flags.StringSliceVar(&a.PodInterfaces, "pod-interface", nil, "interfaces of pods; a trailing * matches the rest of a name")
	flags.BoolVar(&a.PodsOfNode, "node-cidr", false, "the Node's own pod ranges are pod addresses too")
	flags.Var(&nodePorts{of: &a.NodePorts}, "nodeport-addresses", `addresses of node ports: CIDRs, "primary", "localhost", "all"; default all`)
	flags.BoolVar(&a.LocalhostNodePorts, "localhost-nodeports", false, "node ports also answer at loopback addresses, if the mode can")
	flags.BoolVar(&a.MasqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	flags.BoolVar(&a.DirectReturn, "direct-return", false, "direct server return: endpoints on other nodes answer outside clients directly, for Services without the annotation; needs support of the mode and the network")
}

// AddCgroup adds the flag for nodes that share a kernel.
func AddCgroup(flags *pflag.FlagSet, cgroup *string) {
	flags.StringVar(cgroup, "cgroup", "", "cgroup v2 directory whose sockets ebpf mode connects directly; default the root")
}

// AddServiceCIDRs adds the flag that tells the ranges of cluster IPs, where no
// API server of ours knows them.
func (a *Agent) AddServiceCIDRs(flags *pflag.FlagSet) {
	flags.Var(&CIDRs{List: &a.ServiceCIDRs, Mask: true}, "service-cidr", "ranges of cluster IPs; packets to unserved addresses in them are refused")
}

// AddAnnounceNamespace adds the flag that names the namespace of MetalLB's objects.
func AddAnnounceNamespace(flags *pflag.FlagSet, name string, namespace *string) {
	flags.StringVar(namespace, name, v1beta1.DefaultNamespace, "namespace of MetalLB's objects and of the Secret with the key of adverts")
}
