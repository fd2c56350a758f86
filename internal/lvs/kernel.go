// Package lvs speaks with the kernel's IP Virtual Server: virtual servers and their
// destinations by generic netlink (kernel.go, serverwire.go, virtualserver.go), and the
// node's settings that it needs, which are put back in the end (sysctl.go, timeouts.go).
package lvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	mobyipvs "github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

// Balancer is what the plane asks of IPVS: the methods of moby/ipvs's Handle, each of
// which is one netlink message, and what goes in bulk. Tests count them.
type Balancer interface {
	NewService(*mobyipvs.Service) error
	UpdateService(*mobyipvs.Service) error
	DelService(*mobyipvs.Service) error
	NewDestination(*mobyipvs.Service, *mobyipvs.Destination) error
	UpdateDestination(*mobyipvs.Service, *mobyipvs.Destination) error
	DelDestination(*mobyipvs.Service, *mobyipvs.Destination) error
	GetServices() ([]*mobyipvs.Service, error)
	GetDestinations(*mobyipvs.Service) ([]*mobyipvs.Destination, error)
	GetConfig() (*mobyipvs.Config, error)
	SetConfig(*mobyipvs.Config) error
	// Do carries commands out, in order, and tells by their indices which have
	// failed and why.
	Do([]ServerCommand) (map[int]error, error)
}

// Open looks for IPVS before it lets the library do so, which would
// run modprobe and print what comes of it. Asking for the family makes the
// kernel load the module itself where it may.
func Open() (Balancer, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open generic netlink socket: %w", err)
	}
	defer handle.Close()
	family, err := handle.GenlFamilyGet("IPVS")
	if err != nil {
		return nil, &kernel.MissingError{What: "ip_vs", Since: "2.6.28", Err: err}
	}
	b, err := mobyipvs.New("")
	if err != nil {
		return nil, fmt.Errorf("open IPVS: %w", err)
	}
	messages, err := nlmsg.OpenBulk(unix.NETLINK_GENERIC)
	if err != nil {
		b.Close()
		return nil, err
	}
	return &Kernel{b, family.ID, messages}, nil
}

// ToService is a virtual server in the library's words.
func ToService(id ServerID, s Service) *mobyipvs.Service {
	m := &mobyipvs.Service{
		FWMark: id.Mark, SchedName: string(s.Scheduler), Flags: s.Flags, Timeout: s.Timeout,
		AddressFamily: unix.AF_INET, Netmask: 0xffffffff,
	}
	if id.IPv6 {
		m.AddressFamily, m.Netmask = unix.AF_INET6, 128
	}
	if id.Mark == 0 {
		m.Address, m.Port, m.Protocol = net.IP(id.Key.Addr.AsSlice()), id.Key.Port, uint16(id.Key.Proto)
	}
	return m
}

// FromService is the other direction; ok is false for what the plane would
// never make.
func FromService(m *mobyipvs.Service) (id ServerID, s Service, ok bool) {
	id = ServerID{Mark: m.FWMark, IPv6: m.AddressFamily == unix.AF_INET6}
	if id.Mark == 0 {
		addr, valid := toAddr(m.Address, m.AddressFamily)
		if !valid {
			return id, s, false
		}
		id.Key = model.Key{Addr: addr, Port: m.Port, Proto: model.Protocol(m.Protocol)}
	}
	s = Service{Scheduler: model.Scheduler(m.SchedName), Flags: m.Flags & flagsOurs, Timeout: m.Timeout}
	if s.Flags&FlagPersistent == 0 {
		s.Timeout = 0
	}
	return id, s, true
}

// toAddr reads an address of which the library gives 4 or 16 bytes.
func toAddr(ip net.IP, family uint16) (netip.Addr, bool) {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	if len(ip) < size {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(ip[:size])
}

// ToDestination is a destination in the library's words.
func ToDestination(d Destination) *mobyipvs.Destination {
	family := uint16(unix.AF_INET)
	if d.Addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	return &mobyipvs.Destination{
		Address: net.IP(d.Addr.Addr().AsSlice()), Port: d.Addr.Port(), Weight: d.Weight,
		AddressFamily: family, ConnectionFlags: mobyipvs.ConnectionFlagMasq,
	}
}

// Load is how many connections a destination has.
type Load struct {
	Active int // established
	Total  int // and opening, closing and closed ones not yet forgotten
}

// ReadDestinations lists a server's destinations, sorted, and their loads.
func ReadDestinations(b Balancer, m *mobyipvs.Service) ([]Destination, map[netip.AddrPort]Load, error) {
	found, err := b.GetDestinations(m)
	if err != nil {
		return nil, nil, err
	}
	list, loads := make([]Destination, 0, len(found)), map[netip.AddrPort]Load{}
	for _, d := range found {
		addr, ok := toAddr(d.Address, d.AddressFamily)
		if !ok {
			continue
		}
		at := netip.AddrPortFrom(addr, d.Port)
		list = append(list, Destination{at, d.Weight})
		loads[at] = Load{d.ActiveConnections, d.ActiveConnections + d.InactiveConnections}
	}
	SortDestinations(list)
	return list, loads, nil
}

// Kernel is the kernel's IPVS. What there may be much of goes in bulk.
type Kernel struct {
	*mobyipvs.Handle
	family uint16
	Bulk   *nlmsg.BulkSocket
}

// Do carries commands out and tells by their indices which have failed and why.
func (k *Kernel) Do(commands []ServerCommand) (map[int]error, error) {
	messages := make([]*nl.NetlinkRequest, len(commands))
	for i, c := range commands {
		messages[i] = c.request(k.family)
	}
	return k.Bulk.Do(messages, nil)
}

// Close gives up the sockets.
func (k *Kernel) Close() {
	k.Handle.Close()
	k.Bulk.Close()
}

// Gone reports whether IPVS answers that the server (ESRCH) or destination
// (ENOENT) is not there.
func Gone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) }
