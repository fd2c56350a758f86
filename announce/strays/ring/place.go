package ring

import (
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

const (
	filterPriority = 0xf9e // before those that answer ARP, and those of ebpf mode
	filterName     = "fairway-strays"
	programName    = "strays" // bpf/strays.c
	work           = "strays led to their node"
)

func placeOf(h *netlink.Handle, index int) tcfilter.First {
	return tcfilter.First{
		Place:   tcfilter.Place{Netlink: h, Index: index, Side: tcfilter.Ingress, Priority: filterPriority, Prefix: filterName},
		Program: programName,
	}
}

// Sweep ends leading packets to other nodes on all interfaces but some, given by index, and
// names those where a program was. It looks at the network namespace of the calling thread.
func Sweep(stay func(index int) bool) ([]string, error) {
	return tcfilter.FirstAt(placeOf).Sweep(work, stay)
}

// Leftovers names the interfaces on which a program leads packets to other nodes.
func Leftovers() ([]string, error) { return tcfilter.FirstAt(placeOf).Leftovers(work) }
