package dataplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/dataplane/ebpf"
	"github.com/fairway-net/fairway/dataplane/iptables"
	"github.com/fairway-net/fairway/dataplane/ipvs"
	"github.com/fairway-net/fairway/dataplane/nftables"
	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Kind is one way of programming the kernel: a line in the list of planes.
type Kind struct {
	Name  string // what --mode calls it
	Short string // one line for people
	// Privileged modes need more than CAP_NET_ADMIN also after a plane has been
	// prepared for less (kernel.LessPrivilege).
	Privileged bool
	// Interfaces hold addresses of Services, which are not the node's own.
	Interfaces []string
	// TakesAddresses says that the kernel takes all addresses of Services for the node's own,
	// and would answer ARP for them.
	TakesAddresses bool
	// KubeProxyModes are those of kube-proxy's modes that use kernel objects of the
	// same names as this one, so that either makes the other's its own.
	KubeProxyModes []string
	// Mark is part of the name of an object that this mode has and kube-proxy
	// doesn't; "" in modes without KubeProxyModes.
	Mark string
	// Section is the part of kube-proxy's configuration that is about this mode.
	Section Section
	// Networks are those of nodes on which the mode doesn't do all; they are part of Unsupported.
	Networks []kernel.Unsupported
	// InConntrack says that conntrack has an entry, with the endpoint, for each connection
	// that this mode translates, also where the mode has a table of its own.
	InConntrack bool
	// BeforeNetfilter says that packets are translated before netfilter sees them.
	BeforeNetfilter bool
	// Ahead names programs of others that see packets of this node before the mode's. It is
	// nil in modes of netfilter, whose rules package internal/ahead reads.
	Ahead func() ([]string, error)
	// Failures are kube-proxy's metrics of failed syncs for this mode.
	Failures FailureMetrics
	// Bypass has the mode let packets to a frontend pass, as if nobody served it,
	// until the term is over, since cluster DNS answers them on this node. The
	// term ends by itself, whatever becomes of this process. It works also before
	// the first Apply, and beside any method. It is nil in modes that see packets
	// after netfilter's raw table, where cluster DNS takes its own away.
	Bypass func(front model.Key, term time.Duration) error
	// New makes a plane for the network namespace that the calling goroutine's
	// process lives in. It changes nothing yet. A kernel.MissingError says what
	// this machine lacks.
	New func(kernel.Options) (Plane, error)
	// Traces reports whether the mode may have left something in the kernel, as far as a
	// process sees for which New fails for want of a right. nil is "perhaps".
	Traces func() bool
	// Render says what the plane would put into the kernel for a table, without
	// touching it and without privileges; sorted by kind and name.
	Render func(*model.Table, kernel.Options) ([]kernel.Object, error)
	// Script is the same as input for the usual tools (nft -f,
	// iptables-restore, ipvsadm -R): file names to content. It may be nil.
	Script func(*model.Table, kernel.Options) (map[string]string, error)
}

// Made reports whether Fairway, and not kube-proxy, made objects that were read.
func (k Kind) Made(objects []kernel.Object) bool {
	return k.Mark == "" || slices.ContainsFunc(objects, func(o kernel.Object) bool { return strings.Contains(o.Name, k.Mark) })
}

// LeftNothing reports whether an error of New, or of reading what the mode has in the
// kernel, says that the mode can have left nothing there: it can't run on this machine,
// not only not by this process; or there is no trace of it.
func (k Kind) LeftNothing(err error) bool {
	return kernel.IsMissing(err) && (!kernel.IsNotPermitted(err) || k.Traces != nil && !k.Traces())
}

// Section is a part of kube-proxy's configuration, KubeProxyConfiguration of
// kubeproxy.config.k8s.io/v1alpha1. "" is none.
type Section string

// The sections there are.
const (
	SectionNFTables Section = "nftables"
	SectionIPTables Section = "iptables"
	SectionIPVS     Section = "ipvs"
)

// FailureMetrics name the counters of failed syncs: of all, of those that compared
// with the kernel, and of those that trusted the plane's memory. "" is none.
type FailureMetrics struct{ All, Full, Partial string }

// kube-proxy's counters of failed syncs (pkg/proxy/metrics).
const (
	RestoreFailures        = "sync_proxy_rules_iptables_restore_failures_total"
	PartialRestoreFailures = "sync_proxy_rules_iptables_partial_restore_failures_total"
	NFTablesFailures       = "sync_proxy_rules_nftables_sync_failures_total"
	NFTablesCleanupFailed  = "sync_proxy_rules_nftables_cleanup_failures_total"
)

// Kinds are all planes, best first: the order in which `--mode auto` tries.
func Kinds() []Kind {
	return []Kind{
		{
			Name: "nftables", Short: "nf_tables over netlink: a constant number of rules over maps and sets",
			Section: SectionNFTables, InConntrack: true, Networks: nftables.Networks,
			Failures: FailureMetrics{All: NFTablesFailures, Full: NFTablesCleanupFailed},
			New:      func(o kernel.Options) (Plane, error) { return nftables.New(o) },
			Render:   nftables.Render, Script: nftables.Script,
		},
		{
			Name: "ebpf", Privileged: true, Short: "eBPF: sockets are connected to backends directly, all else is translated at the interfaces",
			Bypass: ebpf.Bypass, BeforeNetfilter: true, Ahead: ebpf.Ahead, Networks: ebpf.Networks,
			New:    func(o kernel.Options) (Plane, error) { return ebpf.New(o) },
			Traces: ebpf.Traces,
			Render: ebpf.Render, Script: ebpf.Script,
		},
		{
			Name: "iptables", Short: "iptables rules in kube-proxy's form, both the nft and the legacy variant",
			KubeProxyModes: []string{"iptables", "ipvs"}, Mark: "KUBE-INVALID",
			Section: SectionIPTables, InConntrack: true, Networks: iptables.Networks,
			Failures: FailureMetrics{Full: RestoreFailures, Partial: PartialRestoreFailures},
			New:      func(o kernel.Options) (Plane, error) { return iptables.New(o) },
			Render:   iptables.Render, Script: iptables.Script,
		},
		{
			Name: "ipvs", Short: "IPVS, ipsets and a constant number of iptables rules",
			Interfaces: []string{ipvs.Interface}, TakesAddresses: true,
			KubeProxyModes: []string{"ipvs"}, Mark: "KUBE-FROM-POD",
			Section: SectionIPVS, InConntrack: true, Networks: ipvs.Networks,
			Failures: FailureMetrics{All: RestoreFailures},
			New:      func(o kernel.Options) (Plane, error) { return ipvs.New(o) },
			Render:   ipvs.Render, Script: ipvs.Script,
		},
		{
			Name: "userspace", Short: "a relay process: for kernels and sandboxes where nothing else works",
			TakesAddresses: true,
			New:            func(o kernel.Options) (Plane, error) { return userspace.New(o) },
			Render:         userspace.Render, Script: userspace.Script,
		},
	}
}

// SectionOf is the section of a mode; "" if it has none, or is auto.
func SectionOf(mode string) Section {
	for _, k := range Kinds() {
		if k.Name == mode {
			return k.Section
		}
	}
	return ""
}

// Find returns the plane with this name. The error lists those there are.
func Find(name string) (Kind, error) {
	var names []string
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("%q must be one of auto, %s", name, strings.Join(names, ", "))
}
