package dataplane

import (
	"fmt"
	"strings"

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
	// Privileged modes need more than CAP_NET_ADMIN also when a plane's Init has
	// been called.
	Privileged bool
	// New makes a plane for the network namespace that the calling goroutine's
	// process lives in. It changes nothing yet. A kernel.MissingError says what
	// this machine lacks.
	New func(kernel.Options) (Plane, error)
	// Render says what the plane would put into the kernel for a table, without
	// touching it and without privileges; sorted by kind and name.
	Render func(*model.Table, kernel.Options) ([]kernel.Object, error)
	// Script is the same as input for the usual tools (nft -f,
	// iptables-restore, ipvsadm -R): file names to content. It may be nil.
	Script func(*model.Table, kernel.Options) (map[string]string, error)
}

// Kinds are all planes, best first: the order in which `--mode auto` tries.
func Kinds() []Kind {
	return []Kind{
		{
			Name: "nftables", Short: "nf_tables over netlink: a constant number of rules over maps and sets",
			New:    func(o kernel.Options) (Plane, error) { return nftables.New(o) },
			Render: nftables.Render, Script: nftables.Script,
		},
		{
			Name: "ebpf", Privileged: true, Short: "eBPF: sockets are connected to backends directly, all else is translated at the interfaces",
			New:    func(o kernel.Options) (Plane, error) { return ebpf.New(o) },
			Render: ebpf.Render, Script: ebpf.Script,
		},
		{
			Name: "iptables", Short: "iptables rules in kube-proxy's form, both the nft and the legacy variant",
			New:    func(o kernel.Options) (Plane, error) { return iptables.New(o) },
			Render: iptables.Render, Script: iptables.Script,
		},
		{
			Name: "ipvs", Short: "IPVS, ipsets and a constant number of iptables rules",
			New:    func(o kernel.Options) (Plane, error) { return ipvs.New(o) },
			Render: ipvs.Render, Script: ipvs.Script,
		},
		{
			Name: "userspace", Short: "a relay process: for kernels and sandboxes where nothing else works",
			New:    func(o kernel.Options) (Plane, error) { return userspace.New(o) },
			Render: userspace.Render, Script: userspace.Script,
		},
	}
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
