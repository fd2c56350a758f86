package responder

import (
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

const (
	filterPriority = 0xfa0 // before those of ebpf mode
	filterName     = "fairway-l2"
)

// place is where the program is at an interface. The handle stays in the network
// namespace in which it was opened.
func place(h *netlink.Handle, index int) tcfilter.First {
	return tcfilter.First{
		Place:   tcfilter.Place{Netlink: h, Index: index, Side: tcfilter.Ingress, Priority: filterPriority, Prefix: filterName},
		Program: responderProgRespond,
	}
}

// Sweep ends the answers on all interfaces but some, given by index, and names those
// where there were any.
func Sweep(stay func(index int) bool) ([]string, error) {
	return tcfilter.FirstAt(place).Sweep("end answers", stay)
}

// Leftovers names the interfaces on which a program answers.
func Leftovers() ([]string, error) {
	return tcfilter.FirstAt(place).Leftovers("answers")
}
