package ipvs

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"

	mobyipvs "github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// fakeIPVS answers like the kernel's IPVS, counts messages and forwards nothing.
type fakeIPVS struct {
	servers     map[lvs.ServerID]*fakeServer
	config      mobyipvs.Config
	lacks       []model.Scheduler
	connections map[netip.AddrPort]int
	messages    int
	listings    int
}

type fakeServer struct {
	service      *mobyipvs.Service
	destinations map[netip.AddrPort]*mobyipvs.Destination
}

func newFakeIPVS() *fakeIPVS {
	return &fakeIPVS{
		servers: map[lvs.ServerID]*fakeServer{}, connections: map[netip.AddrPort]int{},
		config: mobyipvs.Config{TimeoutTCP: 900 * time.Second, TimeoutTCPFin: 120 * time.Second, TimeoutUDP: 300 * time.Second},
	}
}

func at(d *mobyipvs.Destination) netip.AddrPort {
	a, _ := netip.AddrFromSlice(d.Address)
	return netip.AddrPortFrom(a, d.Port)
}

func (f *fakeIPVS) find(s *mobyipvs.Service) (lvs.ServerID, *fakeServer) {
	f.messages++
	id, _, _ := lvs.FromService(s)
	return id, f.servers[id]
}

func (f *fakeIPVS) NewService(s *mobyipvs.Service) error {
	id, there := f.find(s)
	if there != nil {
		return unix.EEXIST
	}
	if slices.Contains(f.lacks, model.Scheduler(s.SchedName)) {
		return unix.ENOENT
	}
	f.servers[id] = &fakeServer{s, map[netip.AddrPort]*mobyipvs.Destination{}}
	return nil
}

func (f *fakeIPVS) UpdateService(s *mobyipvs.Service) error {
	_, there := f.find(s)
	if there == nil {
		return unix.ESRCH
	}
	if slices.Contains(f.lacks, model.Scheduler(s.SchedName)) {
		return unix.ENOENT
	}
	there.service = s
	return nil
}

func (f *fakeIPVS) DelService(s *mobyipvs.Service) error {
	id, there := f.find(s)
	if there == nil {
		return unix.ESRCH
	}
	delete(f.servers, id)
	return nil
}

func (f *fakeIPVS) NewDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	_, there := f.find(s)
	switch {
	case there == nil:
		return unix.ESRCH
	case there.destinations[at(d)] != nil:
		return unix.EEXIST
	}
	there.destinations[at(d)] = d
	return nil
}

func (f *fakeIPVS) UpdateDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	_, there := f.find(s)
	switch {
	case there == nil:
		return unix.ESRCH
	case there.destinations[at(d)] == nil:
		return unix.ENOENT
	}
	there.destinations[at(d)] = d
	return nil
}

func (f *fakeIPVS) DelDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	_, there := f.find(s)
	switch {
	case there == nil:
		return unix.ESRCH
	case there.destinations[at(d)] == nil:
		return unix.ENOENT
	}
	delete(there.destinations, at(d))
	return nil
}

func (f *fakeIPVS) Do(commands []lvs.ServerCommand) (map[int]error, error) {
	failed := map[int]error{}
	for i, c := range commands {
		s, d := lvs.ToService(c.ID, c.Service), lvs.ToDestination(c.Destination)
		err := map[uint8]func() error{
			lvs.NewServer:      func() error { return f.NewService(s) },
			lvs.DeleteServer:   func() error { return f.DelService(s) },
			lvs.NewDestination: func() error { return f.NewDestination(s, d) },
			lvs.SetDestination: func() error { return f.UpdateDestination(s, d) },
		}[c.Verb]()
		if err != nil {
			failed[i] = err
		}
	}
	return failed, nil
}

func (f *fakeIPVS) GetServices() ([]*mobyipvs.Service, error) {
	f.messages++
	f.listings++
	var list []*mobyipvs.Service
	for _, s := range f.servers {
		copied := *s.service
		copied.Flags |= 0x2 // IP_VS_SVC_F_HASHED
		list = append(list, &copied)
	}
	return list, nil
}

func (f *fakeIPVS) GetDestinations(s *mobyipvs.Service) ([]*mobyipvs.Destination, error) {
	_, there := f.find(s)
	if there == nil {
		return nil, unix.ESRCH
	}
	var list []*mobyipvs.Destination
	for addr, d := range there.destinations {
		copied := *d
		padded := make(net.IP, 16) // as the library gives IPv4 addresses
		copy(padded, addr.Addr().AsSlice())
		if addr.Addr().Is4() {
			copied.Address = padded[:4]
		}
		copied.ActiveConnections = f.connections[addr]
		list = append(list, &copied)
	}
	return list, nil
}

func (f *fakeIPVS) GetConfig() (*mobyipvs.Config, error) { copied := f.config; return &copied, nil }

func (f *fakeIPVS) SetConfig(c *mobyipvs.Config) error {
	f.config.TimeoutTCP = cmp.Or(c.TimeoutTCP, f.config.TimeoutTCP)
	f.config.TimeoutTCPFin = cmp.Or(c.TimeoutTCPFin, f.config.TimeoutTCPFin)
	f.config.TimeoutUDP = cmp.Or(c.TimeoutUDP, f.config.TimeoutUDP)
	return nil
}
