package handoff

import (
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

const (
	filterPriority = 0xf9f // before those that answer ARP, and those of ebpf mode
	filterName     = "fairway-handoff"
	programName    = "handoff" // bpf/handoff.c
	work           = "connections led elsewhere"
)

func siteOf(h *netlink.Handle, index int) tcfilter.First {
	return tcfilter.First{
		Place:   tcfilter.Place{Netlink: h, Index: index, Side: tcfilter.Ingress, Priority: filterPriority, Prefix: filterName},
		Program: programName,
	}
}

// Sweep ends leading connections elsewhere on all interfaces but some, given by index, and
// names those where a program was. It looks at the network namespace of the calling thread.
func Sweep(stay func(index int) bool) ([]string, error) {
	return tcfilter.FirstAt(siteOf).Sweep(work, stay)
}

// Leftovers names the interfaces on which a program leads connections elsewhere.
func Leftovers() ([]string, error) { return tcfilter.FirstAt(siteOf).Leftovers(work) }
