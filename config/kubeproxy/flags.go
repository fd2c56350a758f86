package kubeproxy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logs "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are kube-proxy's command line. Its spelling of what Fairway has a flag
// for is that flag's second name; see Normalize.
type Flags struct {
	File              string // --config
	WriteTo           string // --write-config-to
	Master            string // --master
	Cleanup, InitOnly bool
	Version           bool

	set                      Configuration // the fields that flags set
	healthzPort, metricsPort *int32
}

// names are kube-proxy's names for flags of Fairway.
var names = map[string]string{"proxy-mode": "mode", "hostname-override": "node-name"}

// Normalize makes kube-proxy's names of Fairway's flags mean these.
func Normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if own, found := names[name]; found {
		name = own
	}
	return pflag.NormalizedName(name)
}

// flag is one of kube-proxy's.
type flag struct {
	name  string
	field string // that it sets; why it may have no effect is what the field says
	usage string // "" hides it
	// why it has no effect, if it sets no field.
	why  string
	bool bool
	// fileToo flags have their effect beside a file too.
	fileToo bool
	set     func(f *Flags, text string) error
}

// flags are those that aren't Fairway's as well, of 1.28 to 1.37 on Linux.
var flags = []flag{
	{name: "bind-address", field: "bindAddress", usage: "the node's primary `address`, instead of the Node object's",
		set: text(func(f *Flags) *string { return &f.set.BindAddress })},
	{name: "bind-address-hard-fail", field: "bindAddressHardFail", bool: true, set: truth(func(f *Flags) *bool { return &f.set.BindAddressHardFail })},
	{name: "profiling", field: "enableProfiling", bool: true, usage: "serve pprof at /debug/pprof of the metrics address",
		set: truth(func(f *Flags) *bool { return &f.set.EnableProfiling })},
	{name: "oom-score-adj", field: "oomScoreAdj", usage: "a `number` from -1000 to 1000: higher means that the kernel kills this process earlier when memory runs out",
		set: integer(func(f *Flags, n int32) { f.set.OOMScoreAdj = &n })},
	{name: "detect-local-mode", field: "detectLocalMode", usage: "how packets of pods are recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
		set: func(f *Flags, s string) error { f.set.DetectLocalMode = v1alpha1.LocalMode(s); return nil }},
	{name: "pod-bridge-interface", field: "detectLocal.bridgeInterface", usage: "the `bridge` of pods, for --detect-local-mode BridgeInterface",
		set: text(func(f *Flags) *string { return &f.set.DetectLocal.BridgeInterface })},
	{name: "pod-interface-name-prefix", field: "detectLocal.interfaceNamePrefix", usage: "prefix of the names of pods' interfaces, for --detect-local-mode InterfaceNamePrefix",
		set: text(func(f *Flags) *string { return &f.set.DetectLocal.InterfaceNamePrefix })},

	{name: "conntrack-max-per-core", field: "conntrack.maxPerCore", usage: "`number` of connections to track per CPU; 0 keeps the kernel's limit",
		set: integer(func(f *Flags, n int32) { f.set.Conntrack.MaxPerCore = &n })},
	{name: "conntrack-min", field: "conntrack.min", usage: "minimum `number` of connections to track",
		set: integer(func(f *Flags, n int32) { f.set.Conntrack.Min = &n })},
	{name: "conntrack-tcp-timeout-established", field: "conntrack.tcpEstablishedTimeout", usage: "`time` after which idle TCP connections are forgotten; 0 leaves the kernel's setting",
		set: duration(func(f *Flags, d metav1.Duration) { f.set.Conntrack.TCPEstablishedTimeout = &d })},
	{name: "conntrack-tcp-timeout-close-wait", field: "conntrack.tcpCloseWaitTimeout", usage: "`time` after which half-closed TCP connections are forgotten",
		set: duration(func(f *Flags, d metav1.Duration) { f.set.Conntrack.TCPCloseWaitTimeout = &d })},
	{name: "conntrack-tcp-be-liberal", field: "conntrack.tcpBeLiberal", bool: true, usage: "TCP packets outside their window count as valid",
		set: truth(func(f *Flags) *bool { return &f.set.Conntrack.TCPBeLiberal })},
	{name: "conntrack-udp-timeout", field: "conntrack.udpTimeout", usage: "`time` after which unanswered UDP flows are forgotten; 0 leaves the kernel's setting",
		set: duration(func(f *Flags, d metav1.Duration) { f.set.Conntrack.UDPTimeout = d })},
	{name: "conntrack-udp-timeout-stream", field: "conntrack.udpStreamTimeout", usage: "`time` after which answered UDP flows are forgotten; 0 leaves the kernel's setting",
		set: duration(func(f *Flags, d metav1.Duration) { f.set.Conntrack.UDPStreamTimeout = d })},

	{name: "iptables-masquerade-bit", field: "iptables.masqueradeBit", usage: "the `bit` of packet marks that iptables and ipvs mode use",
		set: integer(func(f *Flags, n int32) { f.set.IPTables.MasqueradeBit = &n })},
	{name: "iptables-localhost-nodeports", field: "iptables.localhostNodePorts", bool: true, usage: "let node ports answer at loopback addresses in iptables mode",
		set: func(f *Flags, s string) error {
			b, err := strconv.ParseBool(s)
			f.set.IPTables.LocalhostNodePorts = &b
			return err
		}},
	{name: "iptables-sync-period", field: "iptables.syncPeriod", usage: "interval (a `time`) of the periodic comparison with the kernel, in all modes but ipvs", set: duration(func(f *Flags, d metav1.Duration) {
		f.set.IPTables.SyncPeriod, f.set.NFTables.SyncPeriod = d, d
	})},
	{name: "iptables-min-sync-period", field: "iptables.minSyncPeriod", usage: "minimum `time` between two syncs, in all modes but ipvs; 1s, kube-proxy's default, means none", set: duration(func(f *Flags, d metav1.Duration) {
		f.set.IPTables.MinSyncPeriod, f.set.NFTables.MinSyncPeriod = d, d
	})},
	{name: "ipvs-sync-period", field: "ipvs.syncPeriod", usage: "interval (a `time`) of the periodic comparison with the kernel, in ipvs mode",
		set: duration(func(f *Flags, d metav1.Duration) { f.set.IPVS.SyncPeriod = d })},
	{name: "ipvs-min-sync-period", field: "ipvs.minSyncPeriod", usage: "minimum `time` between two syncs, in ipvs mode", set: duration(func(f *Flags, d metav1.Duration) { f.set.IPVS.MinSyncPeriod = d })},
	{name: "ipvs-scheduler", field: "ipvs.scheduler", usage: "how endpoints are chosen for Services without the annotation, in ipvs mode", set: text(func(f *Flags) *string { return &f.set.IPVS.Scheduler })},
	{name: "ipvs-exclude-cidrs", field: "ipvs.excludeCIDRs", usage: "`ranges` in which virtual servers belong to others", set: func(f *Flags, s string) error {
		f.set.IPVS.ExcludeCIDRs = append(f.set.IPVS.ExcludeCIDRs, strings.Split(s, ",")...)
		return nil
	}},
	{name: "ipvs-strict-arp", field: "ipvs.strictARP", bool: true, usage: "answer ARP in ipvs mode only for addresses of the interface asked", set: truth(func(f *Flags) *bool { return &f.set.IPVS.StrictARP })},
	{name: "ipvs-tcp-timeout", field: "ipvs.tcpTimeout", usage: "`time` after which IPVS forgets idle TCP connections; 0 means conntrack's", set: duration(func(f *Flags, d metav1.Duration) { f.set.IPVS.TCPTimeout = d })},
	{name: "ipvs-tcpfin-timeout", field: "ipvs.tcpFinTimeout", usage: "`time` after which IPVS forgets half-closed TCP connections; 0 leaves the kernel's setting", set: duration(func(f *Flags, d metav1.Duration) { f.set.IPVS.TCPFinTimeout = d })},
	{name: "ipvs-udp-timeout", field: "ipvs.udpTimeout", usage: "`time` after which IPVS forgets idle UDP flows; 0 leaves the kernel's setting", set: duration(func(f *Flags, d metav1.Duration) { f.set.IPVS.UDPTimeout = d })},

	{name: "kube-api-content-type", field: "clientConnection.contentType", set: text(func(f *Flags) *string { return &f.set.ClientConnection.ContentType })},
	{name: "kube-api-burst", field: "clientConnection.burst", usage: "`number` of requests to the API in a burst, at most",
		set: integer(func(f *Flags, n int32) { f.set.ClientConnection.Burst = n })},
	{name: "kube-api-qps", field: "clientConnection.qps", usage: "`number` of requests to the API per second, at most", set: func(f *Flags, s string) error {
		n, err := strconv.ParseFloat(s, 32)
		f.set.ClientConnection.QPS = float32(n)
		return err
	}},

	{name: "v", field: "logging.verbosity", fileToo: true, usage: "log level, a `number`; from 4 on the same as --verbose",
		set: func(f *Flags, s string) error {
			n, err := strconv.ParseUint(s, 10, 32)
			f.set.Logging.Verbosity = logs.VerbosityLevel(n)
			return err
		}},
	{name: "logging-format", field: "logging.format", fileToo: true, usage: "text or json", set: text(func(f *Flags) *string { return &f.set.Logging.Format })},
	{name: "vmodule", field: "logging.vmodule", set: ignore},
	{name: "log-flush-frequency", field: "logging.flushFrequency", set: ignore},
	{name: "log-json-split-stream", field: "logging.options.json.splitStream", bool: true, set: ignore},
	{name: "log-json-info-buffer-size", field: "logging.options.json.infoBufferSize", set: ignore},
	{name: "log-text-split-stream", field: "logging.options.text.splitStream", bool: true, set: ignore},
	{name: "log-text-info-buffer-size", field: "logging.options.text.infoBufferSize", set: ignore},

	{name: "healthz-port", field: "healthzBindAddress", set: integer(func(f *Flags, n int32) { f.healthzPort = &n })},
	{name: "metrics-port", field: "metricsBindAddress", set: integer(func(f *Flags, n int32) { f.metricsPort = &n })},
	{name: "config-sync-period", field: "configSyncPeriod", set: duration(func(f *Flags, d metav1.Duration) { f.set.ConfigSyncPeriod = d })},
	{name: "feature-gates", field: "featureGates", usage: "kube-proxy's feature gates, `NAME=false`, ...; ComponentFlagz and ComponentStatusz have an effect", set: gates},
	{name: "show-hidden-metrics-for-version", field: "showHiddenMetricsForVersion", set: ignore},
	{name: "proxy-port-range", field: "portRange", set: ignore},
	{name: "boot-id-file", why: "only the statistics of containers in kube-proxy's libraries read it", set: ignore},
	{name: "machine-id-file", why: "only the statistics of containers in kube-proxy's libraries read it", set: ignore},
}

func ignore(*Flags, string) error { return nil }

func text(field func(*Flags) *string) func(*Flags, string) error {
	return func(f *Flags, s string) error { *field(f) = s; return nil }
}

func truth(field func(*Flags) *bool) func(*Flags, string) error {
	return func(f *Flags, s string) (err error) {
		*field(f), err = strconv.ParseBool(s)
		return err
	}
}

func integer(set func(*Flags, int32)) func(*Flags, string) error {
	return func(f *Flags, s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		set(f, int32(n))
		return err
	}
}

func duration(set func(*Flags, metav1.Duration)) func(*Flags, string) error {
	return func(f *Flags, s string) error {
		d, err := time.ParseDuration(s)
		set(f, metav1.Duration{Duration: d})
		return err
	}
}

// Add adds kube-proxy's flags to those that Fairway has anyway.
func (f *Flags) Add(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(Normalize)
	fs.StringVar(&f.File, "config", "", "KubeProxyConfiguration `file`; a change of it takes effect at once. A flag that is also a field of the file is ignored, and a warning names it")
	fs.StringVar(&f.WriteTo, "write-config-to", "", "write the configuration to this file, and exit")
	fs.StringVar(&f.Master, "master", "", "`URL` of the API server, instead of the kubeconfig's")
	fs.BoolVar(&f.Cleanup, "cleanup", false, "remove what any mode, or kube-proxy, left on this machine, and exit")
	fs.BoolVar(&f.InitOnly, "init-only", false, "do everything that needs all privileges, and exit; the agent then needs CAP_NET_ADMIN only")
	fs.BoolVar(&f.Version, "version", false, "print the version, and exit")
	for _, each := range flags {
		set := func(s string) error { return each.set(f, s) }
		short := ""
		if len(each.name) == 1 {
			short = each.name
		}
		if each.bool {
			fs.BoolFuncP(each.name, short, each.usage, set)
		} else {
			fs.FuncP(each.name, short, each.usage, set)
		}
		fs.Lookup(each.name).Hidden = each.usage == ""
	}
}

// Warnings names the flags that are set and have no effect, with reasons. Beside
// a file, these are most: as with kube-proxy, it is the file that counts.
func (f *Flags) Warnings(fs *pflag.FlagSet) []string {
	var list []string
	for _, each := range flags {
		why := each.why
		if each.field != "" {
			why = fields[each.field].why
		}
		switch {
		case !fs.Changed(each.name):
		case each.field == "featureGates" && gateWarnings(f.set.FeatureGates) == nil && f.File == "":
		case why != "":
			list = append(list, fmt.Sprintf("--%s: has no effect: %s", each.name, why))
		case f.File != "" && !each.fileToo:
			list = append(list, fmt.Sprintf("--%s: has no effect beside --config", each.name))
		}
	}
	return list
}
