package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

// element is one element of a set or map, as the kernel holds it.
type element struct {
	set     *set
	key     string // bytes
	keyEnd  string // bytes, where fields are ranges
	end     bool   // the first key that is not in an interval any more
	data    string // bytes; "" in a set and in a verdict map
	verdict verdict
	comment string
}

// verdict is the value of an element of a verdict map.
type verdict struct {
	kind  expr.VerdictKind
	chain string
}

func (v verdict) String() string {
	switch v.kind {
	case expr.VerdictGoto:
		return "goto " + v.chain
	case expr.VerdictJump:
		return "jump " + v.chain
	case expr.VerdictDrop:
		return "drop"
	case expr.VerdictReturn:
		return "return"
	case expr.VerdictAccept:
		return "accept"
	}
	return fmt.Sprintf("verdict %d %s", v.kind, v.chain)
}

// identity is what makes two elements of a set the same one.
type identity struct {
	key, keyEnd string
	end         bool
}

func (e *element) identity() identity { return identity{e.key, e.keyEnd, e.end} }

// sameValue reports whether two elements with one identity say the same.
func (e *element) sameValue(o *element) bool {
	return e.data == o.data && e.verdict == o.verdict && e.comment == o.comment
}

// write appends the element as a member of an element list. To delete it, its
// key is enough.
func (e *element) write(w *nlmsg.Builder, whole bool) {
	item := w.Open(listElem)
	key := w.Open(unix.NFTA_SET_ELEM_KEY)
	w.Add(unix.NFTA_DATA_VALUE, []byte(e.key))
	w.Close(key)
	if e.keyEnd != "" {
		key := w.Open(setElemKeyEnd)
		w.Add(unix.NFTA_DATA_VALUE, []byte(e.keyEnd))
		w.Close(key)
	}
	switch {
	case e.end:
		w.Number(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	case !whole:
		w.Close(item)
		return
	case e.set.isVerdictMap():
		data := w.Open(unix.NFTA_SET_ELEM_DATA)
		v := w.Open(unix.NFTA_DATA_VERDICT)
		w.Number(unix.NFTA_VERDICT_CODE, uint32(e.verdict.kind))
		if e.verdict.chain != "" {
			w.Text(unix.NFTA_VERDICT_CHAIN, e.verdict.chain)
		}
		w.Close(v)
		w.Close(data)
	case e.data != "":
		data := w.Open(unix.NFTA_SET_ELEM_DATA)
		w.Add(unix.NFTA_DATA_VALUE, []byte(e.data))
		w.Close(data)
	}
	comment(w, unix.NFTA_SET_ELEM_USERDATA, commentOfElement, e.comment)
	w.Close(item)
}

// readElement reads a member of an element list.
func readElement(s *set, data []byte) element {
	e := element{set: s}
	for typ, value := range nlmsg.Attributes(data).All() {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = value0(value)
		case setElemKeyEnd:
			e.keyEnd = value0(value)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.end = value.Number()&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			e.data, e.verdict = readData(value)
		case unix.NFTA_SET_ELEM_USERDATA:
			e.comment = readComment(value, commentOfElement)
		}
	}
	return e
}

func value0(data []byte) string {
	for typ, value := range nlmsg.Attributes(data).All() {
		if typ == unix.NFTA_DATA_VALUE {
			return string(value)
		}
	}
	return ""
}

func readData(data []byte) (string, verdict) {
	var v verdict
	for typ, value := range nlmsg.Attributes(data).All() {
		if typ != unix.NFTA_DATA_VERDICT {
			continue
		}
		for typ, value := range value.All() {
			switch typ {
			case unix.NFTA_VERDICT_CODE:
				v.kind = expr.VerdictKind(int32(value.Number()))
			case unix.NFTA_VERDICT_CHAIN:
				v.chain = value.Text()
			}
		}
	}
	return value0(data), v
}

// Keys and values are made of fields, each padded to 32 bits. Numbers that
// packets carry are in network order, those that the kernel keeps (pool
// numbers, indexes) in the machine's.

func native(v uint32) string {
	return string(binary.NativeEndian.AppendUint32(nil, v))
}

func fromNative(s string) uint32 {
	if len(s) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32([]byte(s))
}

func addrField(a netip.Addr) string { return string(a.AsSlice()) }

func portField(p uint16) string { return string([]byte{byte(p >> 8), byte(p), 0, 0}) }

func protoField(p model.Protocol) string { return string([]byte{byte(p), 0, 0, 0}) }

func keyFields(k model.Key) string {
	return addrField(k.Addr) + protoField(k.Proto) + portField(k.Port)
}

func addrPortFields(a netip.AddrPort) string { return addrField(a.Addr()) + portField(a.Port()) }

// format gives fields of these types as nft prints them.
func format(types []fieldType, data string) string {
	var parts []string
	for _, t := range types {
		size := (t.size + 3) &^ 3
		if len(data) < size {
			return fmt.Sprintf("%x", data)
		}
		parts = append(parts, t.format(data[:t.size]))
		data = data[size:]
	}
	return strings.Join(parts, " . ")
}
