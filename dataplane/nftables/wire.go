package nftables

import (
	"github.com/google/nftables/userdata"

	"github.com/fairway-net/fairway/internal/nlmsg"
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

// comment writes a comment as nft reads it back.
func comment(w *nlmsg.Builder, typ uint16, kind userdata.Type, text string) {
	if text != "" {
		w.Add(typ, userdata.AppendString(nil, kind, text))
	}
}

func readComment(data []byte, kind userdata.Type) string {
	s, _ := userdata.GetString(data, kind)
	return s
}
