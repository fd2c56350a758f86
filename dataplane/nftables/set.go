package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/model"
)

// fieldType is one of nft's data types.
type fieldType struct {
	name   string
	size   int
	magic  uint32 // its number in nft (include/datatype.h)
	format func(string) string
}

func typeOf(t nftables.SetDatatype, format func(string) string) fieldType {
	return fieldType{name: t.Name, size: int(t.Bytes), magic: t.GetNFTMagic(), format: format}
}

func formatAddr(s string) string {
	a, _ := netip.AddrFromSlice([]byte(s))
	return a.String()
}

// formatClass prints a number as nft prints a traffic-control class: this is
// the type of the packet's priority, in which pool numbers travel.
func formatClass(s string) string {
	v := fromNative(s)
	return fmt.Sprintf("%x:%x", v>>16, v&0xffff)
}

var (
	ipv4       = typeOf(nftables.TypeIPAddr, formatAddr)
	ipv6       = typeOf(nftables.TypeIP6Addr, formatAddr)
	protocol   = typeOf(nftables.TypeInetProto, func(s string) string { return model.Protocol(s[0]).String() })
	service    = typeOf(nftables.TypeInetService, func(s string) string { return fmt.Sprint(binary.BigEndian.Uint16([]byte(s))) })
	class      = typeOf(nftables.TypeClassID, formatClass)
	index      = typeOf(nftables.TypeMark, func(s string) string { return fmt.Sprint(fromNative(s)) })
	ifname     = typeOf(nftables.TypeIFName, func(s string) string { return fmt.Sprintf("%q", strings.TrimRight(s, "\x00")) })
	verdictMap = []fieldType{{name: "verdict", magic: verdictDataType}}
)

// set is a set, or a map if it has values.
type set struct {
	name    string
	id      uint32 // its place in sets, from 1
	key     []fieldType
	value   []fieldType
	flags   uint32 // NFT_SET_INTERVAL; what follows from the types is added
	learned bool   // filled by packets, not by this plane
	counted bool   // every element counts the packets that find it
	size    uint32
	// declaration, if not "", stands for the types in nft's language, where
	// that spells them differently.
	declaration string
	comment     string
}

func (s *set) isVerdictMap() bool { return len(s.value) == 1 && s.value[0].magic == verdictDataType }

func (s *set) kind() string {
	if s.value != nil {
		return "map"
	}
	return "set"
}

// kernelFlags are the set's NFT_SET_* flags.
func (s *set) kernelFlags() uint32 {
	flags := s.flags
	if s.value != nil {
		flags |= unix.NFT_SET_MAP
	}
	if len(s.key) > 1 {
		flags |= setConcat
	}
	if s.learned {
		flags |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	return flags
}

// datatype gives nft's number for a concatenation, and its length.
func datatype(types []fieldType) (magic, size uint32) {
	for i, t := range types {
		if i > 0 {
			magic <<= nftables.SetConcatTypeBits
		}
		magic |= t.magic
		size += uint32(t.size)
		if len(types) > 1 {
			size = (size + 3) &^ 3
		}
	}
	return magic, size
}

// describe are the attributes that define the set with a size, 0 for none.
func (s *set) describe(size uint32) nlmsg.Builder {
	var w nlmsg.Builder
	w.Text(unix.NFTA_SET_TABLE, tableName)
	w.Text(unix.NFTA_SET_NAME, s.name)
	w.Number(unix.NFTA_SET_FLAGS, s.kernelFlags())
	magic, length := datatype(s.key)
	w.Number(unix.NFTA_SET_KEY_TYPE, magic)
	w.Number(unix.NFTA_SET_KEY_LEN, length)
	if s.value != nil {
		magic, length := datatype(s.value)
		w.Number(unix.NFTA_SET_DATA_TYPE, magic)
		w.Number(unix.NFTA_SET_DATA_LEN, length)
	}
	w.Number(unix.NFTA_SET_ID, s.id)
	if size != 0 || len(s.key) > 1 {
		desc := w.Open(unix.NFTA_SET_DESC)
		if size != 0 {
			w.Number(unix.NFTA_SET_DESC_SIZE, size)
		}
		if len(s.key) > 1 {
			concat := w.Open(setDescConcat)
			for _, t := range s.key {
				field := w.Open(listElem)
				w.Number(setFieldLen, uint32(t.size))
				w.Close(field)
			}
			w.Close(concat)
		}
		w.Close(desc)
	}
	if s.counted {
		counter := w.Open(setExpr)
		w = append(w, expression(&expr.Counter{})...)
		w.Close(counter)
	}
	w.Add(unix.NFTA_SET_USERDATA, s.userdata())
	return w
}

// userdata is what nft wants to know to print the set. Addresses and ports are
// in network order, which it assumes.
func (s *set) userdata() []byte {
	const hostEndian = 1 // BYTEORDER_HOST_ENDIAN (nft's include/datatype.h)
	var data []byte
	if len(s.key) == 1 && s.key[0].magic == class.magic {
		data = userdata.AppendUint32(data, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, hostEndian)
	}
	if len(s.value) == 1 && s.value[0].magic == class.magic {
		data = userdata.AppendUint32(data, userdata.NFTNL_UDATA_SET_DATABYTEORDER, hostEndian)
	}
	return userdata.AppendString(data, commentOfSet, s.comment)
}

func names(types []fieldType) string {
	var out []string
	for _, t := range types {
		out = append(out, t.name)
	}
	return strings.Join(out, " . ")
}

// body is the set's definition in nft's language, a line each.
func (s *set) body() []string {
	decl := s.declaration
	if decl == "" {
		decl = "type " + names(s.key)
		if s.value != nil {
			decl += " : " + names(s.value)
		}
	}
	lines := []string{decl}
	if s.size != 0 {
		lines = append(lines, fmt.Sprintf("size %d", s.size))
	}
	if s.learned {
		lines = append(lines, "flags dynamic,timeout")
	} else if s.flags&unix.NFT_SET_INTERVAL != 0 {
		lines = append(lines, "flags interval")
	}
	lines = append(lines, fmt.Sprintf("comment %q", s.comment))
	if s.counted {
		lines = append(lines, "counter")
	}
	return lines
}
