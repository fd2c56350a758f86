package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/nlmsg"
)

// batchGenerationID is NFNL_BATCH_GENID (linux/netfilter/nfnetlink.h).
const batchGenerationID = 1

// acceptPolicy is NF_ACCEPT (linux/netfilter.h).
const acceptPolicy = 1

// batch is one transaction: the kernel does all of it or nothing.
type batch struct {
	s      *socket
	full   [][]byte // what goes before data, in pieces: to enlarge one by copying takes twice the memory
	data   nlmsg.Builder
	begin  uint32
	what   []string // by message, for errors
	size   int      // messages
	last   uint32   // the last one's number
	lastAt int      // where in data it begins
}

func (s *socket) newBatch() *batch {
	b := &batch{s: s}
	var w nlmsg.Builder
	w.Number(batchGenerationID, 0)
	b.begin = s.message(&b.data, unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, w)
	return b
}

// onlyAt makes the kernel refuse the batch with ERESTART unless this is the
// generation of nf_tables when it comes. 0 means any.
func (b *batch) onlyAt(generation uint32) {
	at := unix.SizeofNlMsghdr + nfgenmsgLen + unix.SizeofNlAttr
	first := append(b.full[:len(b.full):len(b.full)], b.data)[0]
	binary.BigEndian.PutUint32(first[at:], generation)
}

// isLarge reports whether telling listeners of the batch would cost more than
// the batch itself.
func (b *batch) isLarge() bool { return len(b.full) > 0 }

// pieceSize is how long a piece of a batch gets before the next one begins.
const pieceSize = 1 << 20

// add appends a message; what describes it for people.
func (b *batch) add(typ int, flags uint16, body nlmsg.Builder, what string) {
	b.addOf(unix.NFPROTO_INET, typ, flags, body, what)
}

// addOf is add for tables of a family.
func (b *batch) addOf(family byte, typ int, flags uint16, body nlmsg.Builder, what string) {
	if len(b.data) > pieceSize {
		b.full, b.data = append(b.full, b.data), make(nlmsg.Builder, 0, pieceSize+2*elementBytes)
	}
	b.lastAt = len(b.data)
	b.last = b.s.message(&b.data, unix.NFNL_SUBSYS_NFTABLES<<8|uint16(typ), flags, family, 0, body)
	b.what = append(b.what, what)
	b.size++
}

func (b *batch) addTable() {
	var w nlmsg.Builder
	w.Text(unix.NFTA_TABLE_NAME, tableName)
	w.Number(unix.NFTA_TABLE_FLAGS, 0)
	comment(&w, tableUserdata, commentOfTable, tableComment)
	b.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, w, "add table")
}

func (b *batch) deleteTable() {
	var w nlmsg.Builder
	w.Text(unix.NFTA_TABLE_NAME, tableName)
	b.add(unix.NFT_MSG_DELTABLE, 0, w, "delete table")
}

// addSet adds a set of a size, 0 for none; one that is there gets that size.
func (b *batch) addSet(s *set, size uint32) {
	b.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.describe(size), "add "+s.kind()+" "+s.name)
}

func (b *batch) deleteSet(name string) {
	var w nlmsg.Builder
	w.Text(unix.NFTA_SET_TABLE, tableName)
	w.Text(unix.NFTA_SET_NAME, name)
	b.add(unix.NFT_MSG_DELSET, 0, w, "delete set "+name)
}

func (b *batch) addChain(c *chain) {
	var w nlmsg.Builder
	w.Text(unix.NFTA_CHAIN_TABLE, tableName)
	w.Text(unix.NFTA_CHAIN_NAME, c.name)
	if c.hook != nil {
		at := w.Open(unix.NFTA_CHAIN_HOOK)
		w.Number(unix.NFTA_HOOK_HOOKNUM, c.hook.number)
		w.Number(unix.NFTA_HOOK_PRIORITY, uint32(c.hook.priority))
		w.Close(at)
		w.Number(unix.NFTA_CHAIN_POLICY, acceptPolicy)
		w.Text(unix.NFTA_CHAIN_TYPE, c.hook.typ)
	}
	b.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, w, "add chain "+c.name)
}

func (b *batch) addRules(c *chain) {
	for _, r := range c.rules {
		var w nlmsg.Builder
		w.Text(unix.NFTA_RULE_TABLE, tableName)
		w.Text(unix.NFTA_RULE_CHAIN, c.name)
		at := w.Open(unix.NFTA_RULE_EXPRESSIONS)
		for _, e := range r.exprs {
			w.Add(listElem|unix.NLA_F_NESTED, e)
		}
		w.Close(at)
		b.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, w, "add to chain "+c.name+" rule "+r.text)
	}
}

// chainMessage names a chain, for deleting it or all its rules.
func (b *batch) chainMessage(typ int, table, name uint16, chain, verb string) {
	var w nlmsg.Builder
	w.Text(table, tableName)
	w.Text(name, chain)
	b.add(typ, 0, w, verb+" "+chain)
}

func (b *batch) deleteChain(name string) {
	b.chainMessage(unix.NFT_MSG_DELCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, name, "delete chain")
}

func (b *batch) flushChain(name string) {
	b.chainMessage(unix.NFT_MSG_DELRULE, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, name, "flush chain")
}

func (b *batch) flushSet(name string) {
	var w nlmsg.Builder
	w.Text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
	w.Text(unix.NFTA_SET_ELEM_LIST_SET, name)
	b.add(unix.NFT_MSG_DELSETELEM, 0, w, "flush set "+name)
}

// commit sends the batch. The kernel answers before the call returns: with an
// error for every message that it doesn't like, or with one for the whole.
func (b *batch) commit() error {
	if b.size == 0 {
		return nil
	}
	flags := b.data[b.lastAt+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	b.s.message(&b.data, unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	if err := b.s.send(append(b.full, b.data)...); err != nil {
		return fmt.Errorf("send transaction of %d messages: %w", b.size, err)
	}
	var first error
	for done := false; !done; {
		err := b.s.receive(false, func(h nlmsg.Header, body []byte) error {
			if h.Type != unix.NLMSG_ERROR || h.Seq < b.begin || h.Seq > b.s.seq {
				return nil
			}
			err := nlmsg.Errno(body)
			done = done || h.Seq == b.last || h.Seq == b.begin
			if err != nil && first == nil {
				first = b.explain(h.Seq, err)
			}
			return nil
		})
		switch {
		case errors.Is(err, unix.EAGAIN) && first != nil:
			return first
		case errors.Is(err, unix.EAGAIN):
			return errors.New("commit transaction: the kernel doesn't say how it went")
		case errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR):
			// Some of many errors were lost; the rest are still there.
		case err != nil:
			return fmt.Errorf("commit transaction: %w", err)
		}
	}
	return first
}

func (b *batch) explain(seq uint32, err error) error {
	what := "commit transaction"
	if i := int(seq - b.begin - 1); i >= 0 && i < len(b.what) {
		what = b.what[i]
	}
	switch {
	case errors.Is(err, unix.EPERM):
		err = &kernel.MissingError{What: "CAP_NET_ADMIN", Err: err}
	case strings.HasPrefix(what, "add to chain") && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP)):
		// The chain, and all that the rule names, came before in the transaction.
		err = &kernel.MissingError{What: "an expression of nf_tables", Since: "5.13", Err: err}
	case errors.Is(err, unix.EINVAL) && seq == b.begin, errors.Is(err, unix.EPROTONOSUPPORT):
		err = &kernel.MissingError{What: "nf_tables (CONFIG_NF_TABLES)", Since: "3.13", Err: err}
	}
	return fmt.Errorf("%s: %w", what, err)
}
