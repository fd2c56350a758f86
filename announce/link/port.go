package link

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// Room are the bytes that frames may take up before they are read: what four nodes say of ten
// thousand addresses at once.
const Room = 4 << 20

// Port is an interface's socket for frames with one magic. It is read by one goroutine.
type Port struct {
	Device *net.Interface
	*packet.Conn

	inlet    *Inlet
	magic    [4]byte
	budget   budget
	narrowed bool
	peers    map[[6]byte]bool // as the budget knows them
}

// Open opens a port of an interface in the network namespace of the calling thread. Group is the
// group address that frames go to; nil if they go to this node alone.
func Open(device *net.Interface, etherType uint16, magic [4]byte, group net.HardwareAddr) (*Port, error) {
	filter, err := assemble(all(magic))
	if err != nil {
		return nil, err
	}
	c, err := packet.Listen(device, packet.Raw, int(etherType), &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("open packet socket on %s: %w", device.Name, err)
	}
	p := &Port{Device: device, Conn: c, inlet: NewInlet(c), magic: magic, budget: newBudget(), peers: map[[6]byte]bool{}}
	if err := makeRoom(c, Room); err != nil {
		return nil, errors.Join(fmt.Errorf("make room for frames on %s: %w", device.Name, err), c.Close())
	}
	if group != nil {
		if err := Join(c, device, unix.PACKET_MR_MULTICAST, group); err != nil {
			return nil, errors.Join(fmt.Errorf("join group of frames on %s: %w", device.Name, err), c.Close())
		}
	}
	return p, nil
}

// Join has the network card let through a group's frames, or all groups'.
func Join(c syscall.Conn, device *net.Interface, kind uint16, group net.HardwareAddr) error {
	request := unix.PacketMreq{Ifindex: int32(device.Index), Type: kind, Alen: uint16(len(group))}
	copy(request.Address[:], group)
	return control(c, func(fd int) error {
		return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &request)
	})
}

// makeRoom has a socket keep as many bytes that aren't read yet. Without CAP_NET_ADMIN it is
// net.core.rmem_max at most.
func makeRoom(c syscall.Conn, bytes int) error {
	return control(c, func(fd int) error {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes) == nil {
			return nil
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	})
}

// control calls with the number of a socket, which stays open meanwhile.
func control(c syscall.Conn, call func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = call(int(fd)) })
	return errors.Join(err, failed)
}

// IsBehind reports whether frames came that aren't taken yet; see Inlet.
func (p *Port) IsBehind() bool { return p.inlet.IsBehind() }

// Reader takes in the frames of a port.
type Reader struct {
	// Read looks at a frame without a lock, and returns what takes it in; nil if it isn't to be
	// believed. The frame's bytes are used for the next one.
	Read func(now time.Time, frame []byte) Take
	// Lock is held while a frame is taken in.
	Lock sync.Locker
	// Peers says which MACs are nodes'. It is called with the lock held.
	Peers func() []net.HardwareAddr
}

// Ignore is for frames that are neither bad nor of interest.
func Ignore() bool { return true }

// Take takes in a frame that was read, with the lock held, and reports whether it was a new one.
type Take func() (ok bool)

// Receive reads frames until the port is closed. An interface that is down may come up again.
func (p *Port) Receive(r Reader) error {
	own := [6]byte(p.Device.HardwareAddr)
	return p.inlet.receive(func(frame []byte) {
		now := time.Now()
		p.passWindow(now, r)
		if len(frame) < EtherHead || [6]byte(frame[6:]) == own {
			return
		}
		source := [6]byte(frame[6:])
		if !p.budget.has(source, p.peers[source]) {
			p.budget.bad++
			p.defend()
			return
		}
		ok := false
		if take := r.Read(now, frame); take != nil {
			r.Lock.Lock()
			ok = take()
			r.Lock.Unlock()
		}
		if !ok {
			p.budget.spend(source)
			p.defend()
		}
	})
}

// passWindow learns at the end of a window who the nodes are, and lets all frames in again once
// there is no flood any more.
func (p *Port) passWindow(now time.Time, r Reader) {
	bad := p.budget.pass(now)
	if bad < 0 {
		return
	}
	r.Lock.Lock()
	macs := r.Peers()
	r.Lock.Unlock()
	clear(p.peers)
	for _, mac := range macs {
		p.peers[[6]byte(mac)] = true
	}
	if p.narrowed {
		p.narrowed = bad*sampleOneIn >= floodedAt
		p.setFilter()
	}
}

// defend has the kernel drop most frames of strangers when there are too many bad ones, and those
// in the name of a node that uses up its budget.
func (p *Port) defend() {
	if p.budget.bad%floodedAt != 0 {
		return
	}
	p.narrowed = true
	p.setFilter()
}

// setFilter tells the kernel which frames to drop. One that it doesn't take is no loss: the
// budget holds without it.
func (p *Port) setFilter() {
	list := all(p.magic)
	if p.narrowed {
		var macs [][6]byte
		for mac := range p.peers {
			if !p.budget.isOver(mac) && len(macs) < mostNarrow {
				macs = append(macs, mac)
			}
		}
		list = narrow(p.magic, macs)
	}
	if raw, err := assemble(list); err == nil {
		_ = p.SetBPF(raw)
	}
}
