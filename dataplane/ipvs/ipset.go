package ipvs

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

// maxElements is the size to which sets may grow. It costs nothing before.
const maxElements = 1 << 21

// batchBytes is how much one message carries: an attribute's length has 16 bits.
const batchBytes = 32 << 10

// ipsets speaks to the kernel's ip_set subsystem (nfnetlink). It is not
// netlink's own client because elements go in batches here, carry marks, and
// come back with them.
type ipsets struct {
	sockets  map[int]*nl.SocketHandle
	messages int // sent so far
	fault    fault
}

func openIpsets() (*ipsets, error) {
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open nfnetlink socket: %w", err)
	}
	return &ipsets{sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}}, nil
}

// flagsOfMarks are those of sets whose elements carry marks.
const flagsOfMarks = nl.IPSET_FLAG_WITH_SKBINFO | nl.IPSET_FLAG_WITH_COUNTERS

// close gives up the socket.
func (s *ipsets) close() {
	for _, socket := range s.sockets {
		socket.Socket.Close()
	}
}

// revisions are the oldest that have marks (Linux 3.18).
var revisions = map[string]uint8{hashIPPort: 5, hashIPPortIP: 5, hashIPPortNet: 7, hashIP: 4, hashNet: 6, bitmapPort: 3}

func (s *ipsets) request(command, flags int, name string) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, flags)
	req.Sockets = s.sockets
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	if name != "" {
		req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	}
	return req
}

func (s *ipsets) do(req *nl.NetlinkRequest) error {
	s.messages++
	if err := s.fault.next(); err != nil {
		return explainIpset(err)
	}
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return explainIpset(err)
}

// explainIpset says what the kernel's answers mean.
func explainIpset(err error) error {
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

// probe asks for the protocol's version, which every kernel with ip_set knows.
func (s *ipsets) probe() error {
	err := s.do(s.request(nl.IPSET_CMD_PROTOCOL, unix.NLM_F_ACK, ""))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return &kernel.MissingError{What: "ip_set", Since: "2.6.39", Err: err}
	}
	return err
}

// create makes a set under a name. One that exists with the same type is left
// as it is; another is an error.
func (s *ipsets) create(id setID, name string) error {
	family := uint8(unix.AF_INET)
	if id.ipv6 {
		family = unix.AF_INET6
	}
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	if id.typ() == bitmapPort {
		family = unix.AF_UNSPEC
		data.AddRtAttr(nl.IPSET_ATTR_PORT_FROM|unix.NLA_F_NET_BYTEORDER, []byte{0, 0})
		data.AddRtAttr(nl.IPSET_ATTR_PORT_TO|unix.NLA_F_NET_BYTEORDER, []byte{0xff, 0xff})
	} else {
		data.AddRtAttr(attrMaxElem|unix.NLA_F_NET_BYTEORDER, big32(maxElements))
	}
	if setKinds[id.kind].marks {
		data.AddRtAttr(nl.IPSET_ATTR_CADT_FLAGS|unix.NLA_F_NET_BYTEORDER, big32(flagsOfMarks))
	}
	req := s.request(nl.IPSET_CMD_CREATE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(id.typ())))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_REVISION, nl.Uint8Attr(revisions[id.typ()])))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FAMILY, nl.Uint8Attr(family)))
	req.AddData(data)
	if err := s.do(req); err != nil {
		return fmt.Errorf("create ipset %s: %w", name, err)
	}
	return nil
}

// destroy removes a set. One that isn't there is no error.
func (s *ipsets) destroy(name string) error {
	err := s.do(s.request(nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK, name))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("destroy ipset %s: %w", name, err)
	}
	return nil
}

// flush empties a set. One that isn't there is no error.
func (s *ipsets) flush(name string) error {
	err := s.do(s.request(nl.IPSET_CMD_FLUSH, unix.NLM_F_ACK, name))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("empty ipset %s: %w", name, err)
	}
	return nil
}

// swap exchanges the contents of two sets of one type in one step.
func (s *ipsets) swap(name, other string) error {
	req := s.request(nl.IPSET_CMD_SWAP, unix.NLM_F_ACK, name)
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(other)))
	if err := s.do(req); err != nil {
		return fmt.Errorf("swap ipsets %s and %s: %w", name, other, err)
	}
	return nil
}

// markedElement is an element with what it puts on packets.
type markedElement struct {
	element
	mark    mark
	packets uint64 // that got the mark, as the kernel has counted
}

// add puts elements into the set, or gives those that are there their mark.
func (s *ipsets) add(id setID, name string, elements []markedElement) error {
	return s.batch(nl.IPSET_CMD_ADD, id, name, elements)
}

// remove takes elements out of the set; those that aren't there don't matter.
func (s *ipsets) remove(id setID, name string, elements []markedElement) error {
	return s.batch(nl.IPSET_CMD_DEL, id, name, elements)
}

func (s *ipsets) batch(command int, id setID, name string, elements []markedElement) error {
	for len(elements) > 0 {
		list := nl.NewRtAttr(nl.IPSET_ATTR_ADT|unix.NLA_F_NESTED, nil)
		n := 0
		for size := 0; n < len(elements) && size < batchBytes; n++ {
			data := encode(id, elements[n])
			list.AddChild(data)
			size += data.Len()
		}
		req := s.request(command, unix.NLM_F_ACK, name)
		req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, big32(0)))
		req.AddData(list)
		if err := s.do(req); err != nil {
			verb := map[int]string{nl.IPSET_CMD_ADD: "add to", nl.IPSET_CMD_DEL: "remove from"}[command]
			return fmt.Errorf("%s ipset %s %d elements from %s on: %w", verb, name, n, elements[0].text(id.typ()), err)
		}
		elements = elements[n:]
	}
	return nil
}
