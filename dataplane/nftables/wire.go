package nftables

import (
	"encoding/binary"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// Attributes that the unix package does not name (linux/netfilter/nf_tables.h).
const (
	setDescConcat    = 2          // NFTA_SET_DESC_CONCAT
	setFieldLen      = 1          // NFTA_SET_FIELD_LEN
	setElemKeyEnd    = 10         // NFTA_SET_ELEM_KEY_END
	setExpr          = 17         // NFTA_SET_EXPR
	setConcat        = 0x80       // NFT_SET_CONCAT
	tableUserdata    = 6          // NFTA_TABLE_USERDATA
	chainUserdata    = 12         // NFTA_CHAIN_USERDATA
	listElem         = 1          // NFTA_LIST_ELEM
	verdictDataType  = 0xffffff00 // NFT_DATA_VERDICT
	commentOfTable   = 0          // NFTNL_UDATA_TABLE_COMMENT
	commentOfChain   = 0          // NFTNL_UDATA_CHAIN_COMMENT
	commentOfElement = userdata.NFTNL_UDATA_SET_ELEM_COMMENT
	commentOfSet     = userdata.NFTNL_UDATA_SET_COMMENT
	nfgenmsgLen      = 4
)

// wire is a netlink message in the making.
type wire []byte

func (w *wire) attr(typ uint16, data []byte) {
	w.header(typ, len(data))
	*w = append(*w, data...)
	w.pad()
}

func (w *wire) str(typ uint16, s string) {
	w.header(typ, len(s)+1)
	*w = append(*w, s...)
	*w = append(*w, 0)
	w.pad()
}

func (w *wire) u32(typ uint16, v uint32) {
	w.header(typ, 4)
	*w = binary.BigEndian.AppendUint32(*w, v)
}

func (w *wire) header(typ uint16, size int) {
	*w = binary.NativeEndian.AppendUint16(*w, uint16(unix.SizeofNlAttr+size))
	*w = binary.NativeEndian.AppendUint16(*w, typ)
}

func (w *wire) pad() {
	for len(*w)%4 != 0 {
		*w = append(*w, 0)
	}
}

// open begins a nested attribute, close ends it.
func (w *wire) open(typ uint16) int {
	at := len(*w)
	w.header(typ|unix.NLA_F_NESTED, 0)
	return at
}

func (w *wire) close(at int) {
	binary.NativeEndian.PutUint16((*w)[at:], uint16(len(*w)-at))
}

// comment writes a comment as nft reads it back.
func (w *wire) comment(typ uint16, kind userdata.Type, text string) {
	if text != "" {
		w.attr(typ, userdata.AppendString(nil, kind, text))
	}
}

func readComment(data []byte, kind userdata.Type) string {
	s, _ := userdata.GetString(data, kind)
	return s
}
