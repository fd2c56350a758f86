package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
)

// Destroy ends sockets in the kernel (SOCK_DESTROY, linux/sock_diag.h, since
// 4.9), in the namespaces that this process can reach: its own, and those that
// have names. Those that it has ended are taken out of sockets.
func Destroy[V any](sockets map[uint64]V) error {
	if err := destroyHere(sockets); err != nil {
		return err
	}
	known, err := netns.Names("")
	if err != nil {
		return err
	}
	for _, name := range known {
		if len(sockets) == 0 {
			break
		}
		ns, err := netns.Open(name)
		if err != nil {
			continue // it went meanwhile, or is none
		}
		err = ns.Do(func() error { return destroyHere(sockets) })
		if err := errors.Join(err, ns.Close()); err != nil {
			return fmt.Errorf("destroy sockets in %s: %w", name, err)
		}
	}
	return nil
}

// destroyHere ends those of the sockets that are in the thread's namespace.
func destroyHere[V any](sockets map[uint64]V) error {
	return Each(func(family uint8, proto model.Protocol, cookie uint64, s *netlink.Socket) error {
		if _, wanted := sockets[cookie]; !wanted {
			return nil
		}
		if err := destroySocket(family, proto, s.ID); err != nil {
			return err
		}
		delete(sockets, cookie)
		return nil
	})
}

// Each calls f for the TCP and UDP sockets of the thread's namespace, until it fails.
func Each(f func(family uint8, proto model.Protocol, cookie uint64, s *netlink.Socket) error) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for proto, list := range map[model.Protocol]func(uint8) ([]*netlink.Socket, error){model.UDP: netlink.SocketDiagUDP, model.TCP: netlink.SocketDiagTCP} {
			found, err := list(family)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without
			}
			if err != nil {
				return fmt.Errorf("list sockets: %w", err)
			}
			for _, s := range found {
				if err := f(family, proto, uint64(s.ID.Cookie[1])<<32|uint64(s.ID.Cookie[0]), s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// destroyRequest is struct inet_diag_req_v2 (linux/inet_diag.h).
type destroyRequest []byte

func (r destroyRequest) Len() int          { return len(r) }
func (r destroyRequest) Serialize() []byte { return r }

func destroySocket(family uint8, proto model.Protocol, id netlink.SocketID) error {
	r := destroyRequest{family, byte(proto), 0, 0}
	r = binary.NativeEndian.AppendUint32(r, ^uint32(0)) // in any state
	r = binary.BigEndian.AppendUint16(r, id.SourcePort)
	r = binary.BigEndian.AppendUint16(r, id.DestinationPort)
	for _, ip := range []net.IP{id.Source, id.Destination} {
		var field [16]byte
		if family == unix.AF_INET {
			ip = ip.To4()
		}
		copy(field[:], ip)
		r = append(r, field[:]...)
	}
	for _, n := range []uint32{id.Interface, id.Cookie[0], id.Cookie[1]} {
		r = binary.NativeEndian.AppendUint32(r, n)
	}
	request := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	request.AddData(r)
	_, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("destroy socket: %w", err)
	}
	return nil
}

// Disconnect ends a TCP connection: connect(2) with an address of no family.
func Disconnect(fd int) error {
	address := &unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(address)), unsafe.Sizeof(*address))
	if errno != 0 {
		return ErrNotDone // some kernels don't while a process waits for it: EBUSY
	}
	return nil
}
