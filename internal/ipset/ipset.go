// Package ipset speaks to the kernel's ip_set subsystem: it makes sets, changes many
// elements at once, and reads them back.
//
// ipset.go has the commands, wire.go how elements are encoded, listing.go sets as the kernel
// has them, element.go what is in them.
package ipset

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Attributes that the nl package numbers differently from the kernel or not at
// all (linux/netfilter/ipset/ip_set.h).
const (
	attrIP2     = 20
	attrCIDR2   = 21
	attrMaxElem = 19
	attrBytes   = 24
	attrPackets = 25
	attrSkbMark = 27
)

// MaxElements is the size to which sets may grow. It costs nothing before.
const MaxElements = 1 << 21

// batchBytes is how much one message carries: an attribute's length has 16 bits.
const batchBytes = 32 << 10

// Socket speaks to the kernel's ip_set subsystem (nfnetlink). It is not
// netlink's own client because elements go in batches here, carry marks, and
// come back with them.
type Socket struct {
	sockets  map[int]*nl.SocketHandle
	Messages int          // sent so far
	Fault    func() error // what tests have the next call end with; nil lets it go on
}

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Socket, error) {
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open nfnetlink socket: %w", err)
	}
	return &Socket{sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}}, nil
}

// Kind is what a set can hold.
type Kind struct {
	Type  string // of the set type
	IPv6  bool
	Marks bool // elements carry a packet mark and count the packets that get it
}

// The set types (linux/netfilter/ipset).
const (
	HashIPPort    = "hash:ip,port"
	HashIPPortIP  = "hash:ip,port,ip"
	HashIPPortNet = "hash:ip,port,net"
	HashIP        = "hash:ip"
	HashNet       = "hash:net"
	BitmapPort    = "bitmap:port"
)

// flagsOfMarks are those of sets whose elements carry marks.
const flagsOfMarks = nl.IPSET_FLAG_WITH_SKBINFO | nl.IPSET_FLAG_WITH_COUNTERS

// Close gives up the socket.
func (s *Socket) Close() {
	for _, socket := range s.sockets {
		socket.Socket.Close()
	}
}

// revisions are the oldest that have marks (Linux 3.18).
var revisions = map[string]uint8{HashIPPort: 5, HashIPPortIP: 5, HashIPPortNet: 7, HashIP: 4, HashNet: 6, BitmapPort: 3}

func (s *Socket) request(command, flags int, name string) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, flags)
	req.Sockets = s.sockets
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	if name != "" {
		req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	}
	return req
}

func (s *Socket) do(req *nl.NetlinkRequest) error {
	s.Messages++
	if s.Fault != nil {
		if err := s.Fault(); err != nil {
			return explain(err)
		}
	}
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return explain(err)
}

// explain says what the kernel's answers mean.
func explain(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch {
	case errno == unix.EPERM:
		return &kernel.MissingError{What: "CAP_NET_ADMIN", Err: err}
	case errno == nl.IPSET_ERR_FIND_TYPE:
		return &kernel.MissingError{What: "the ipset type", Since: "3.18", Err: err}
	case errno >= nl.IPSET_ERR_PRIVATE:
		return nl.IPSetError(errno)
	}
	return err
}

// Probe asks for the protocol's version, which every kernel with ip_set knows.
func (s *Socket) Probe() error {
	err := s.do(s.request(nl.IPSET_CMD_PROTOCOL, unix.NLM_F_ACK, ""))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return &kernel.MissingError{What: "ip_set", Since: "2.6.39", Err: err}
	}
	return err
}

// Create makes a set under a name. One that exists with the same type is left
// as it is; another is an error.
func (s *Socket) Create(kind Kind, name string) error {
	family := uint8(unix.AF_INET)
	if kind.IPv6 {
		family = unix.AF_INET6
	}
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	if kind.Type == BitmapPort {
		family = unix.AF_UNSPEC
		data.AddRtAttr(nl.IPSET_ATTR_PORT_FROM|unix.NLA_F_NET_BYTEORDER, []byte{0, 0})
		data.AddRtAttr(nl.IPSET_ATTR_PORT_TO|unix.NLA_F_NET_BYTEORDER, []byte{0xff, 0xff})
	} else {
		data.AddRtAttr(attrMaxElem|unix.NLA_F_NET_BYTEORDER, big32(MaxElements))
	}
	if kind.Marks {
		data.AddRtAttr(nl.IPSET_ATTR_CADT_FLAGS|unix.NLA_F_NET_BYTEORDER, big32(flagsOfMarks))
	}
	req := s.request(nl.IPSET_CMD_CREATE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(kind.Type)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_REVISION, nl.Uint8Attr(revisions[kind.Type])))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FAMILY, nl.Uint8Attr(family)))
	req.AddData(data)
	if err := s.do(req); err != nil {
		return fmt.Errorf("create ipset %s: %w", name, err)
	}
	return nil
}

// Destroy removes a set. One that isn't there is no error.
func (s *Socket) Destroy(name string) error {
	err := s.do(s.request(nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK, name))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("destroy ipset %s: %w", name, err)
	}
	return nil
}

// Flush empties a set. One that isn't there is no error.
func (s *Socket) Flush(name string) error {
	err := s.do(s.request(nl.IPSET_CMD_FLUSH, unix.NLM_F_ACK, name))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("empty ipset %s: %w", name, err)
	}
	return nil
}

// Swap exchanges the contents of two sets of one type in one step.
func (s *Socket) Swap(name, other string) error {
	req := s.request(nl.IPSET_CMD_SWAP, unix.NLM_F_ACK, name)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(other)))
	if err := s.do(req); err != nil {
		return fmt.Errorf("swap ipsets %s and %s: %w", name, other, err)
	}
	return nil
}

// Marked is an element with what it puts on packets.
type Marked struct {
	Element
	Mark    Mark
	Packets uint64 // that got the mark, as the kernel has counted
}

// Add puts elements into the set, or gives those that are there their mark.
func (s *Socket) Add(kind Kind, name string, elements []Marked) error {
	return s.batch(nl.IPSET_CMD_ADD, kind, name, elements)
}

// Remove takes elements out of the set; those that aren't there don't matter.
func (s *Socket) Remove(kind Kind, name string, elements []Marked) error {
	return s.batch(nl.IPSET_CMD_DEL, kind, name, elements)
}

func (s *Socket) batch(command int, kind Kind, name string, elements []Marked) error {
	for len(elements) > 0 {
		list := nl.NewRtAttr(nl.IPSET_ATTR_ADT|unix.NLA_F_NESTED, nil)
		n := 0
		for size := 0; n < len(elements) && size < batchBytes; n++ {
			data := encode(kind, elements[n])
			list.AddChild(data)
			size += data.Len()
		}
		req := s.request(command, unix.NLM_F_ACK, name)
		req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, big32(0)))
		req.AddData(list)
		if err := s.do(req); err != nil {
			verb := map[int]string{nl.IPSET_CMD_ADD: "add to", nl.IPSET_CMD_DEL: "remove from"}[command]
			return fmt.Errorf("%s ipset %s %d elements from %s on: %w", verb, name, n, elements[0].Text(kind.Type), err)
		}
		elements = elements[n:]
	}
	return nil
}
