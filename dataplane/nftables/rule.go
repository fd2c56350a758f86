package nftables

import (
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// rule is one rule, in nft's language and as the kernel takes it.
type rule struct {
	text  string
	exprs []nlmsg.Builder
}

// part is a piece of a rule.
type part struct {
	text  string
	exprs []nlmsg.Builder
}

// value loads something into registers.
type value struct {
	text  string
	words int // registers of 32 bits that it takes
	load  func(word int) []nlmsg.Builder
}

func newRule(parts ...part) rule {
	var r rule
	var words []string
	for _, p := range parts {
		words = append(words, p.text)
		r.exprs = append(r.exprs, p.exprs...)
	}
	r.text = strings.Join(words, " ")
	return r
}

// all is true if each of the parts is.
func all(parts ...part) part {
	r := newRule(parts...)
	return part(r)
}

// register is the number of the register that begins at this 32-bit word, in
// the form in which the kernel reports it.
func register(word int) uint32 {
	if word%4 == 0 {
		return unix.NFT_REG_1 + uint32(word/4)
	}
	return unix.NFT_REG32_00 + uint32(word)
}

// expression encodes an expression of the nftables library. Errors are about
// expressions that don't make sense in themselves; the layout's are fixed, and
// the tests send every one to a kernel.
func expression(e expr.Any) nlmsg.Builder {
	b, err := expr.Marshal(unix.NFPROTO_INET, e)
	if err != nil {
		panic(fmt.Sprintf("nftables: encode %T: %v", e, err))
	}
	return b
}

func expressions(list ...expr.Any) []nlmsg.Builder {
	out := make([]nlmsg.Builder, len(list))
	for i, e := range list {
		out[i] = expression(e)
	}
	return out
}

func metaValue(text string, key expr.MetaKey) value {
	words := 1
	if key == expr.MetaKeyIIFNAME || key == expr.MetaKeyOIFNAME {
		words = 4
	}
	return value{text, words, func(word int) []nlmsg.Builder {
		return expressions(&expr.Meta{Key: key, Register: register(word)})
	}}
}

func payload(text string, base expr.PayloadBase, offset, size uint32) value {
	return value{text, int(size+3) / 4, func(word int) []nlmsg.Builder {
		return expressions(&expr.Payload{DestRegister: register(word), Base: base, Offset: offset, Len: size})
	}}
}

// ctOriginal loads a part of the tuple by which the connection began.
func ctOriginal(text string, key uint32, words int) value {
	return value{"ct original " + text, words, func(word int) []nlmsg.Builder {
		var w nlmsg.Builder
		w.Text(unix.NFTA_EXPR_NAME, "ct")
		data := w.Open(unix.NFTA_EXPR_DATA)
		w.Number(unix.NFTA_CT_KEY, key)
		w.Number(unix.NFTA_CT_DREG, register(word))
		w.Add(unix.NFTA_CT_DIRECTION, []byte{0}) // IP_CT_DIR_ORIGINAL
		w.Close(data)
		return []nlmsg.Builder{w}
	}}
}

// concat is nft's a . b . c.
func concat(values ...value) value {
	var texts []string
	var words int
	for _, v := range values {
		texts = append(texts, v.text)
		words += v.words
	}
	return value{strings.Join(texts, " . "), words, func(word int) []nlmsg.Builder {
		var out []nlmsg.Builder
		for _, v := range values {
			out = append(out, v.load(word)...)
			word += v.words
		}
		return out
	}}
}

func lookup(s *set, source uint32) *expr.Lookup {
	return &expr.Lookup{SourceRegister: source, SetName: s.name, SetID: s.inBatch()}
}

// in is true if the key is in the set, notIn if it isn't.
func in(key value, s *set) part {
	return part{key.text + " @" + s.name, append(key.load(0), expression(lookup(s, register(0))))}
}

func notIn(key value, s *set) part {
	l := lookup(s, register(0))
	l.Invert = true
	return part{key.text + " != @" + s.name, append(key.load(0), expression(l))}
}

// mapped is what a map says of the key. A key that the map doesn't have ends
// the rule.
func mapped(key value, s *set) value {
	_, size := datatype(s.value)
	return value{key.text + " map @" + s.name, int(size+3) / 4, func(word int) []nlmsg.Builder {
		l := lookup(s, register(word))
		l.DestRegister, l.IsDestRegSet = register(word), true
		return append(key.load(word), expression(l))
	}}
}

// dispatch does what a verdict map says of the key.
func dispatch(key value, s *set) part {
	l := lookup(s, register(0))
	l.DestRegister, l.IsDestRegSet = unix.NFT_REG_VERDICT, true
	return part{key.text + " vmap @" + s.name, append(key.load(0), expression(l))}
}

// compare compares with a constant, as it is in the register.
func compare(v value, op expr.CmpOp, constant, text string) part {
	return part{v.text + " " + text, append(v.load(0),
		expression(&expr.Cmp{Op: op, Register: register(0), Data: []byte(constant)}))}
}

// masked is a number with some of its bits.
func masked(v value, mask uint32) value {
	return value{fmt.Sprintf("%s & 0x%x", v.text, mask), 1, func(word int) []nlmsg.Builder {
		return append(v.load(word), expression(&expr.Bitwise{SourceRegister: register(word), DestRegister: register(word),
			Len: 4, Mask: []byte(native(mask)), Xor: []byte(native(0))}))
	}}
}
