package ipvs

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listing is a set as the kernel has it.
type listing struct {
	typ      string
	ipv6     bool
	marks    bool // and counters
	maxElem  uint32
	elements []markedElement
	index    map[element]mark // of elements, once asked for
}

// fits reports whether the set can serve as this one.
func (l *listing) fits(id setID) bool {
	if l.typ != id.typ() || l.marks != setKinds[id.kind].marks {
		return false
	}
	return l.typ == bitmapPort || l.ipv6 == id.ipv6 && l.maxElem >= maxElements
}

// list reads a set; nil if there is none.
func (s *ipsets) list(name string) (*listing, error) {
	l := &listing{}
	if err := s.fault.next(); err != nil {
		return nil, fmt.Errorf("list ipset %s: %w", name, explainIpset(err))
	}
	err := s.request(nl.IPSET_CMD_LIST, unix.NLM_F_ACK|unix.NLM_F_DUMP, name).
		ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool { l.parse(msg); return true })
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ipset %s: %w", name, explainIpset(err))
	}
	return l, nil
}
