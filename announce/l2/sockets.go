package l2

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
)

// EtherType of adverts: IEEE 802's "local experimental 1". They never leave the
// link.
const EtherType = 0x88b5

// advertGroup is where adverts go: a group address of our own, so that the
// network cards of other machines drop them.
var advertGroup = net.HardwareAddr{0x03, 0x46, 0x57, 0x4c, 0x32, 0x00}

// sockets are the ways to a link. They stay in the network namespace of the
// thread that opened them.
type sockets struct {
	adverts, answers *link.Port
	arp, ndp         *packet.Conn
	arpIn, ndpIn     *link.Inlet
	groups           int // a UDP socket that holds the memberships of solicited-node groups
}

func openSockets(device *net.Interface) (*sockets, error) {
	s := &sockets{groups: -1}
	err := s.open(device)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sockets) open(device *net.Interface) error {
	var err error
	if s.adverts, err = link.Open(device, EtherType, core.Format.Magic, advertGroup); err != nil {
		return err
	}
	// Answers don't wait behind adverts: they say that a node lives.
	if s.answers, err = link.Open(device, EtherType, questionMagic, nil); err != nil {
		return err
	}
	if s.arp, err = packet.Listen(device, packet.Raw, etherARP, nil); err != nil {
		return fmt.Errorf("open packet socket for ARP on %s: %w", device.Name, err)
	}
	filter, err := bpf.Assemble(ndpFilter())
	if err != nil {
		return fmt.Errorf("assemble filter for NDP: %w", err)
	}
	if s.ndp, err = packet.Listen(device, packet.Raw, etherIPv6, &packet.Config{Filter: filter}); err != nil {
		return fmt.Errorf("open packet socket for NDP on %s: %w", device.Name, err)
	}
	s.arpIn, s.ndpIn = link.NewInlet(s.arp), link.NewInlet(s.ndp)
	s.groups, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // a machine without IPv6 needs none
		return fmt.Errorf("open socket for groups on %s: %w", device.Name, err)
	}
	return nil
}

func (s *sockets) close() error {
	var errs []error
	for _, p := range []*link.Port{s.adverts, s.answers} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	for _, c := range []*packet.Conn{s.arp, s.ndp} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if s.groups >= 0 {
		errs = append(errs, os.NewSyscallError("close", unix.Close(s.groups)))
		s.groups = -1
	}
	return errors.Join(errs...)
}

// ndpFilter lets through solicitations and advertisements without extension
// headers, which is how they are sent.
func ndpFilter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: etherHead + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: etherHead + ipv6Head, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: solicitation, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: advertisement, SkipTrue: 1},
		bpf.RetConstant{Val: 65535},
		bpf.RetConstant{Val: 0},
	}
}

// join takes part in an IPv6 address's group: the kernel tells switches that
// look after groups (MLD). Where it has no room for more, all groups are let in.
// Lasting ones are let in by the network card also when this process has ended.
func (s *sockets) join(device *net.Interface, a netip.Addr, in, lasting bool) error {
	if s.groups < 0 {
		return nil
	}
	if lasting {
		if err := letIn(s.groups, device, multicastMAC(solicitedNode(a)), in); err != nil {
			return fmt.Errorf("let the group of %s in on %s: %w", a, device.Name, err)
		}
	}
	request := &unix.IPv6Mreq{Multiaddr: solicitedNode(a).As16(), Interface: uint32(device.Index)}
	option := unix.IPV6_JOIN_GROUP
	if !in {
		option = unix.IPV6_LEAVE_GROUP
	}
	err := unix.SetsockoptIPv6Mreq(s.groups, unix.IPPROTO_IPV6, option, request)
	switch {
	case err == nil, errors.Is(err, unix.EADDRINUSE), errors.Is(err, unix.EADDRNOTAVAIL):
		return nil
	case in && (errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)):
		return link.Join(s.ndp, device, unix.PACKET_MR_ALLMULTI, nil)
	}
	return fmt.Errorf("join group of %s on %s: %w", a, device.Name, err)
}

// letIn has a network card let a group's frames in until that is taken back
// (netdevice(7), SIOCADDMULTI).
func letIn(socket int, device *net.Interface, group net.HardwareAddr, in bool) error {
	var request struct {
		name    [unix.IFNAMSIZ]byte
		family  uint16
		address [14]byte
		_       [8]byte // of the union, which is longer
	}
	copy(request.name[:unix.IFNAMSIZ-1], device.Name)
	copy(request.address[:], group)
	what := uintptr(unix.SIOCADDMULTI)
	if !in {
		what = unix.SIOCDELMULTI
	}
	_, _, failed := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), what, uintptr(unsafe.Pointer(&request)))
	if failed != 0 && failed != unix.EEXIST && (in || failed != unix.ENOENT && failed != unix.ENODEV) {
		return failed
	}
	return nil
}
