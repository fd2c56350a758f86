package kernel

// XDPMode says whether a plane may handle packets in the drivers of interfaces (XDP).
type XDPMode string

// The values of XDPMode. The kernel's substitute for drivers that can't (generic XDP) is
// slower than handling packets at the interface, and is never used.
const (
	XDPOff    XDPMode = "off"
	XDPAuto   XDPMode = "auto"   // where a driver offers it
	XDPNative XDPMode = "native" // the same, and an interface where it can't be had is worth a warning
)

// XDPModes are all of them.
func XDPModes() []XDPMode { return []XDPMode{XDPOff, XDPAuto, XDPNative} }

// Drivers is what a plane knows of packets in drivers, where it may handle them there.
type Drivers struct {
	Interfaces []Driver // with outside traffic
	Forwarded  uint64   // packets that drivers sent on
}

// Driver says of an interface with outside traffic whether packets are handled in its driver.
type Driver struct {
	Interface string `json:"interface"`
	XDP       bool   `json:"xdp"`
	Why       string `json:"why,omitempty"` // not
}
