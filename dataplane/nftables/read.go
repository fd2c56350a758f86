package nftables

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// contents are all that the kernel holds of Fairway's table.
type contents struct {
	generation uint32 // of all nf_tables, read before the rest
	present    bool
	comment    string
	sets       map[string]*foundSet
	chains     map[string]*foundChain
	elements   map[string]map[identity]element // by set
}

// foundSet is a set that the kernel's table holds.
type foundSet struct {
	ours *set // the one of sets with this name and form; nil if there is none
}

// foundChain is a chain in the kernel.
type foundChain struct {
	hook  *hook // type and name as far as they are ours
	rules []foundRule
}

// foundRule is a rule in the kernel: its expressions, as received.
type foundRule struct{ exprs [][]byte }

// genID is NFTA_GEN_ID (linux/netfilter/nf_tables.h).
const genID = 1

// maxReadings bounds how often read begins again because others change nf_tables.
const maxReadings = 20

// read reads the table. If a transaction changes nf_tables meanwhile, it begins again.
func (s *socket) read() (*contents, error) {
	var err error
	for range maxReadings {
		var c *contents
		if c, err = s.readOnce(); err == nil || !errors.Is(err, unix.EINTR) {
			return c, err
		}
	}
	return nil, fmt.Errorf("read table: it kept changing: %w", err)
}

func (s *socket) readOnce() (*contents, error) {
	c := &contents{sets: map[string]*foundSet{}, chains: map[string]*foundChain{}, elements: map[string]map[identity]element{}}
	var err error
	if c.generation, err = s.generation(); err != nil {
		return c, err
	}
	if err := s.readTable(c); err != nil || !c.present {
		return c, err
	}
	for _, step := range []func(*contents) error{s.readSets, s.readChains, s.readRules} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	for name, found := range c.sets {
		if found.ours == nil || found.ours.learned {
			continue
		}
		if err := s.readElements(c, found.ours); err != nil {
			return nil, fmt.Errorf("list elements of %s: %w", name, err)
		}
	}
	return c, nil
}

// get sends a request and calls visit for each answer.
func (s *socket) get(typ int, flags uint16, body nlmsg.Builder, visit func([]byte)) error {
	return s.getOf(unix.NFPROTO_INET, typ, flags, body, visit)
}

// getOf is get for tables of a family.
func (s *socket) getOf(family byte, typ int, flags uint16, body nlmsg.Builder, visit func([]byte)) error {
	var w nlmsg.Builder
	seq := s.message(&w, unix.NFNL_SUBSYS_NFTABLES<<8|uint16(typ), flags|unix.NLM_F_ACK, family, 0, body)
	if err := s.send(w); err != nil {
		return err
	}
	var failure error
	for done := false; !done; {
		err := s.receive(true, func(h nlmsg.Header, body []byte) error {
			if h.Seq != seq {
				return nil
			}
			if h.Flags&unix.NLM_F_DUMP_INTR != 0 && !s.unsteady {
				failure = unix.EINTR
			}
			switch h.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				done = true
				if err := nlmsg.Errno(body); err != nil && failure == nil {
					failure = permission(err)
				}
			default:
				if len(body) >= nfgenmsgLen {
					visit(body[nfgenmsgLen:])
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return failure
}

// generation is a number that every transaction counts up by one.
func (s *socket) generation() (n uint32, err error) {
	err = s.get(unix.NFT_MSG_GETGEN, 0, nil, func(data []byte) {
		for typ, value := range nlmsg.Attributes(data).All() {
			if typ == genID {
				n = value.Number()
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return n, nil
}

func (s *socket) readTable(c *contents) error {
	var w nlmsg.Builder
	w.Text(unix.NFTA_TABLE_NAME, tableName)
	err := s.get(unix.NFT_MSG_GETTABLE, 0, w, func(data []byte) {
		c.present = true
		for typ, value := range nlmsg.Attributes(data).All() {
			if typ == tableUserdata {
				c.comment = readComment(value, commentOfTable)
			}
		}
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return missingNFTables(err)
	case err != nil:
		return fmt.Errorf("read table: %w", err)
	}
	return nil
}

func (s *socket) readSets(c *contents) error {
	var w nlmsg.Builder
	w.Text(unix.NFTA_SET_TABLE, tableName)
	err := s.get(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, w, func(data []byte) {
		attrs := map[uint16]nlmsg.Attributes{}
		for typ, value := range nlmsg.Attributes(data).All() {
			attrs[typ] = value
		}
		name := attrs[unix.NFTA_SET_NAME].Text()
		found := &foundSet{}
		c.sets[name] = found
		for _, want := range sets {
			if want.name == name && want.matches(attrs) {
				found.ours = want
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list sets: %w", err)
	}
	return nil
}

// matches reports whether the kernel's set is made as this one.
func (s *set) matches(attrs map[uint16]nlmsg.Attributes) bool {
	keyType, keyLen := datatype(s.key)
	if attrs[unix.NFTA_SET_FLAGS].Number() != s.kernelFlags() || attrs[unix.NFTA_SET_KEY_TYPE].Number() != keyType ||
		attrs[unix.NFTA_SET_KEY_LEN].Number() != keyLen || s.counted != (attrs[setExpr] != nil) {
		return false
	}
	if s.value == nil {
		return true
	}
	dataType, dataLen := datatype(s.value)
	return attrs[unix.NFTA_SET_DATA_TYPE].Number() == dataType && (s.isVerdictMap() || attrs[unix.NFTA_SET_DATA_LEN].Number() == dataLen)
}

func (s *socket) readElements(c *contents, of *set) error {
	var w nlmsg.Builder
	w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	w.Text(unix.NFTA_SET_ELEM_LIST_SET, of.name)
	elements := map[identity]element{}
	c.elements[of.name] = elements
	return s.get(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, w, func(data []byte) {
		for typ, list := range nlmsg.Attributes(data).All() {
			if typ != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, item := range list.All() {
				e := readElement(of, item)
				elements[e.identity()] = e
			}
		}
	})
}
