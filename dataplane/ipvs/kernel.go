package ipvs

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	mobyipvs "github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netlink/bulk"
	"github.com/fairway-net/fairway/model"
)

// balancer is what the plane asks of IPVS: the methods of moby/ipvs's Handle, each of
// which is one netlink message, and what goes in bulk. Tests count them.
type balancer interface {
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
	Do([]serverCommand) (map[int]error, error)
}

// openBalancer looks for IPVS before it lets the library do so, which would
// run modprobe and print what comes of it. Asking for the family makes the
// kernel load the module itself where it may.
func openBalancer() (balancer, error) {
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
	messages, err := bulk.Open(unix.NETLINK_GENERIC)
	if err != nil {
		b.Close()
		return nil, err
	}
	return &ipvsKernel{b, family.ID, messages}, nil
}

// toService is a virtual server in the library's words.
func toService(id serverID, s service) *mobyipvs.Service {
	m := &mobyipvs.Service{
		FWMark: id.mark, SchedName: string(s.scheduler), Flags: s.flags, Timeout: s.timeout,
		AddressFamily: unix.AF_INET, Netmask: 0xffffffff,
	}
	if id.ipv6 {
		m.AddressFamily, m.Netmask = unix.AF_INET6, 128
	}
	if id.mark == 0 {
		m.Address, m.Port, m.Protocol = net.IP(id.key.Addr.AsSlice()), id.key.Port, uint16(id.key.Proto)
	}
	return m
}

// fromService is the other direction; ok is false for what the plane would
// never make.
func fromService(m *mobyipvs.Service) (id serverID, s service, ok bool) {
	id = serverID{mark: m.FWMark, ipv6: m.AddressFamily == unix.AF_INET6}
	if id.mark == 0 {
		addr, valid := toAddr(m.Address, m.AddressFamily)
		if !valid {
			return id, s, false
		}
		id.key = model.Key{Addr: addr, Port: m.Port, Proto: model.Protocol(m.Protocol)}
	}
	s = service{scheduler: model.Scheduler(m.SchedName), flags: m.Flags & flagsOurs, timeout: m.Timeout}
	if s.flags&flagPersistent == 0 {
		s.timeout = 0
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

func toDestination(d destination) *mobyipvs.Destination {
	family := uint16(unix.AF_INET)
	if d.addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	return &mobyipvs.Destination{
		Address: net.IP(d.addr.Addr().AsSlice()), Port: d.addr.Port(), Weight: d.weight,
		AddressFamily: family, ConnectionFlags: mobyipvs.ConnectionFlagMasq,
	}
}

// load is how many connections a destination has.
type load struct {
	active int // established
	total  int // and opening, closing and closed ones not yet forgotten
}

// readDestinations lists a server's destinations, sorted, and their loads.
func readDestinations(b balancer, m *mobyipvs.Service) ([]destination, map[netip.AddrPort]load, error) {
	found, err := b.GetDestinations(m)
	if err != nil {
		return nil, nil, err
	}
	list, loads := make([]destination, 0, len(found)), map[netip.AddrPort]load{}
	for _, d := range found {
		addr, ok := toAddr(d.Address, d.AddressFamily)
		if !ok {
			continue
		}
		at := netip.AddrPortFrom(addr, d.Port)
		list = append(list, destination{at, d.Weight})
		loads[at] = load{d.ActiveConnections, d.ActiveConnections + d.InactiveConnections}
	}
	sortDestinations(list)
	return list, loads, nil
}

// addServer makes a virtual server. A scheduler that this kernel lacks is
// noted, and the next best taken.
func (p *Plane) addServer(id serverID, pool *model.Pool) error {
	return p.setServer(id, pool, p.balancer.NewService)
}

func (p *Plane) setServer(id serverID, pool *model.Pool, command func(*mobyipvs.Service) error) error {
	for {
		s := p.choose.service(id, pool, len(pool.Draining) > 0 || len(p.orphans[id]) > 0)
		err := command(toService(id, s))
		switch {
		case err == nil:
			p.services[id] = s
			return nil
		case errors.Is(err, unix.EEXIST):
			command = p.balancer.UpdateService
		case errors.Is(err, unix.ENOENT) && s.scheduler != model.RoundRobin && !p.choose.missing[s.scheduler]:
			p.choose.missing[s.scheduler] = true
			slog.Warn("IPVS scheduler missing", "scheduler", s.scheduler, "module", "ip_vs_"+string(s.scheduler))
		case errors.Is(err, unix.ENOENT) && s.scheduler == model.RoundRobin:
			return &kernel.MissingError{What: "ip_vs_rr", Since: "2.4", Err: err}
		default:
			return fmt.Errorf("set virtual server %s: %w", id, err)
		}
	}
}

func (p *Plane) removeServer(id serverID) error {
	delete(p.services, id)
	delete(p.orphans, id)
	if err := p.balancer.DelService(toService(id, service{})); err != nil && !gone(err) {
		return fmt.Errorf("remove virtual server %s: %w", id, err)
	}
	return nil
}

// gone reports whether IPVS answers that the server (ESRCH) or destination
// (ENOENT) is not there.
func gone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) }

// putDestination makes or changes a destination, whichever it takes.
func (p *Plane) putDestination(id serverID, d destination, there bool) error {
	if _, orphan := p.orphans[id][d.addr]; orphan {
		there = true
		if delete(p.orphans[id], d.addr); len(p.orphans[id]) == 0 {
			delete(p.orphans, id)
		}
	}
	s, m := toService(id, service{}), toDestination(d)
	commands := []func(*mobyipvs.Service, *mobyipvs.Destination) error{p.balancer.NewDestination, p.balancer.UpdateDestination}
	if there {
		slices.Reverse(commands)
	}
	err := commands[0](s, m)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
		err = commands[1](s, m)
	}
	if err != nil {
		return fmt.Errorf("put destination %s of virtual server %s: %w", d.addr, id, err)
	}
	return nil
}

func (p *Plane) removeDestination(id serverID, at netip.AddrPort) error {
	err := p.balancer.DelDestination(toService(id, service{}), toDestination(destination{addr: at}))
	if err != nil && !gone(err) {
		return fmt.Errorf("remove destination %s of virtual server %s: %w", at, id, err)
	}
	return nil
}
