package nftables

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// elementBytes is how much of elements goes into one message: netlink's nested
// attributes end at 64 KiB.
const elementBytes = 32 << 10

// elements adds or deletes elements.
func (b *batch) elements(add bool, list []element) {
	w := b.elementWriter(add)
	for i := range list {
		w.put(&list[i])
	}
	w.finish()
}

// elementWriter brings elements of one set together, so that a message holds
// many.
type elementWriter struct {
	b    *batch
	add  bool
	open []openMessage // by set
}

// openMessage is a message to which elements are still added.
type openMessage struct {
	data  nlmsg.Builder
	list  int // where in data the list begins
	count int
	first string // the key of the first element
}

func (b *batch) elementWriter(add bool) *elementWriter {
	return &elementWriter{b: b, add: add, open: make([]openMessage, len(sets))}
}

func (w *elementWriter) put(e *element) {
	m := &w.open[e.set.id-1]
	if m.count == 0 {
		m.data = m.data[:0]
		m.data.Text(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
		m.data.Text(unix.NFTA_SET_ELEM_LIST_SET, e.set.name)
		m.list = m.data.Open(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		m.first = e.key
	}
	e.write(&m.data, w.add)
	m.count++
	if len(m.data) > elementBytes {
		w.end(e.set, m)
	}
}

func (w *elementWriter) end(s *set, m *openMessage) {
	typ, flags, verb := unix.NFT_MSG_DELSETELEM, uint16(0), "delete"
	if w.add {
		typ, flags, verb = unix.NFT_MSG_NEWSETELEM, uint16(unix.NLM_F_CREATE|unix.NLM_F_EXCL), "add"
	}
	what := fmt.Sprintf("%s %d elements of %s %s", verb, m.count, s.kind(), s.name)
	if m.count == 1 {
		what = fmt.Sprintf("%s element %s of %s %s", verb, format(s.key, m.first), s.kind(), s.name)
	}
	m.data.Close(m.list)
	w.b.add(typ, flags, m.data, what)
	m.count = 0
}

func (w *elementWriter) finish() {
	for i := range w.open {
		if w.open[i].count > 0 {
			w.end(sets[i], &w.open[i])
		}
	}
}
