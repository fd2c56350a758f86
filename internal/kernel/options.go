package kernel

import (
	"cmp"
	"net/netip"
	"time"
)

// DefaultStateDir is where planes keep what must outlive the process, unless
// they are told otherwise.
const DefaultStateDir = "/run/fairway"

// Options are what planes are made with. Zero values are good defaults.
type Options struct {
	// For every plane:

	// Drift, if not nil, is called when somebody else has changed the plane's
	// kernel objects; the answer to it is an Apply with verify set. Calls come
	// from any goroutine and must not block.
	Drift func()
	// Swept, if not nil, is told after connections were brought into line with
	// a table: how many entries of conntrack were deleted or given an end, and how
	// long it took. Calls come from the goroutine that calls Apply, unless SweepLater is set.
	Swept func(entries int, took time.Duration)
	// SweepLater allows planes to bring connections into line a moment after Apply, in
	// another goroutine, if nothing has gone that they could lead to.
	SweepLater bool
	// StateDir is where planes keep what must outlive the process and isn't in
	// the kernel (sockets handed over, sysctls to be put back); "" means
	// DefaultStateDir.
	StateDir string
	// KeepKubeProxy has Remove leave objects that only kube-proxy has, since one
	// runs again.
	KeepKubeProxy bool

	// For more than one:

	// MasqueradeMark is the packet-mark bit for packets to be masqueraded
	// (iptables, ipvs); 0 means kube-proxy's 0x4000.
	MasqueradeMark uint32
	// IPTablesVariant names the iptables to use, "nft" or "legacy" (iptables,
	// ipvs); "" means the one that is in use on this machine.
	IPTablesVariant string
	// Scheduler is what pools get that name none (all but iptables); "" leaves
	// it to the plane.
	Scheduler string

	// For one:

	// CountBytes asks for a count of each frontend's bytes too, which costs
	// something with every packet (nftables).
	CountBytes bool
	// Cgroup is the directory of the cgroup (version 2) whose sockets are this
	// node's and its pods' (ebpf). "" means the root of the hierarchy, or, if this
	// process isn't in the network namespace of the machine itself, its own one.
	Cgroup string
	// XDP says whether packets may be handled in drivers (ebpf); "" means off.
	XDP XDPMode
	// IPVS is what ipvs mode alone is told.
	IPVS IPVSOptions
}

// IPVSOptions are what kube-proxy configures of IPVS and nothing else has.
type IPVSOptions struct {
	// TCP, TCPFin and UDP are after which time IPVS forgets idle connections
	// (ipvsadm --set); 0 leaves them, but for TCP: that is at least conntrack's.
	TCP, TCPFin, UDP time.Duration
	// Exclude are addresses whose virtual servers are others', unless a Service
	// has them.
	Exclude []netip.Prefix
	// StrictARP keeps the node from answering ARP for addresses of other
	// interfaces from the start, and not only once there is one to keep quiet about.
	StrictARP bool
}

// StateDirectory is StateDir or its default.
func (o Options) StateDirectory() string { return cmp.Or(o.StateDir, DefaultStateDir) }
