package ipset

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Listing is a set as the kernel has it.
type Listing struct {
	typ      string
	ipv6     bool
	marks    bool // and counters
	maxElem  uint32
	Elements []Marked
	index    map[Element]Mark // of elements, once asked for
}

// Fits reports whether the set can serve as this one.
func (l *Listing) Fits(kind Kind) bool {
	if l.typ != kind.Type || l.marks != kind.Marks {
		return false
	}
	return l.typ == BitmapPort || l.ipv6 == kind.IPv6 && l.maxElem >= MaxElements
}

// Has reports whether an element is in the set.
func (l *Listing) Has(e Element) bool {
	if l.index == nil {
		l.index = make(map[Element]Mark, len(l.Elements))
		for _, marked := range l.Elements {
			l.index[marked.Element] = marked.Mark
		}
	}
	_, found := l.index[e]
	return found
}

// List reads a set; nil if there is none.
func (s *Socket) List(name string) (*Listing, error) {
	l := &Listing{}
	if s.Fault != nil {
		if err := s.Fault(); err != nil {
			return nil, fmt.Errorf("list ipset %s: %w", name, explain(err))
		}
	}
	err := s.request(nl.IPSET_CMD_LIST, unix.NLM_F_ACK|unix.NLM_F_DUMP, name).
		ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool { l.parse(msg); return true })
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ipset %s: %w", name, explain(err))
	}
	return l, nil
}
