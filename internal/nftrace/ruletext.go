package nftrace

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// describer puts a rule's expressions into words close to nft's. It knows what is
// in which register; what it doesn't know is named by the kernel's word for it.
type describer struct {
	words     []string
	registers map[uint32]loaded
}

// loaded is what a register holds.
type loaded struct {
	text string
	kind kind
	mask []byte // what was left of it, nil for all
	raw  []byte // a constant
}

// describe puts a rule into words.
func describe(a nlmsg.Attributes) string {
	d := describer{registers: map[uint32]loaded{}}
	for _, e := range a.Get(unix.NFTA_RULE_EXPRESSIONS).All() {
		d.expression(e.String(unix.NFTA_EXPR_NAME), e.Get(unix.NFTA_EXPR_DATA))
	}
	text := strings.Join(d.words, " ")
	if comment := comment(a.Get(unix.NFTA_RULE_USERDATA)); comment != "" {
		text += fmt.Sprintf(" comment %q", comment)
	}
	return strings.TrimSpace(text)
}

// comment finds nft's comment in what a rule's maker has kept with it, which may be
// anything: a type, a length, and so many bytes, again and again, if it is nft's.
func comment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if value := data[2 : 2+int(data[1])]; userdata.Type(data[0]) == userdata.TypeComment {
			return strings.TrimRight(string(value), "\x00")
		}
		data = data[2+int(data[1]):]
	}
	return ""
}

func (d *describer) say(format string, args ...any) {
	d.words = append(d.words, fmt.Sprintf(format, args...))
}

// expression reads one expression.
func (d *describer) expression(name string, a nlmsg.Attributes) {
	switch name {
	case "counter":
	case "payload":
		if number := a.Uint32(unix.NFTA_PAYLOAD_SREG); number != 0 {
			d.say("set %s to %s", field(a).text, d.read(number))
			return
		}
		d.load(a.Uint32(unix.NFTA_PAYLOAD_DREG), field(a))
	case "meta":
		key := metaKeys[a.Uint32(unix.NFTA_META_KEY)]
		if number := a.Uint32(unix.NFTA_META_SREG); number != 0 {
			d.set(key, number)
			return
		}
		d.load(a.Uint32(unix.NFTA_META_DREG), key)
	case "ct":
		key := ctKeys[a.Uint32(unix.NFTA_CT_KEY)]
		if number := a.Uint32(unix.NFTA_CT_SREG); number != 0 {
			d.set(key, number)
			return
		}
		d.load(a.Uint32(unix.NFTA_CT_DREG), key)
	case "bitwise":
		d.mask(a)
	case "byteorder":
		d.load(a.Uint32(unix.NFTA_BYTEORDER_DREG), d.registers[slot(a.Uint32(unix.NFTA_BYTEORDER_SREG))])
	case "numgen", "hash", "fib", "rt", "socket", "osf", "exthdr", "tunnel", "xfrm":
		d.load(a.Uint32(destination[name]), loaded{text: name})
	case "immediate":
		d.immediate(a)
	case "cmp":
		d.compare(a)
	case "range":
		from, to := value(a.Get(unix.NFTA_RANGE_FROM_DATA)), value(a.Get(unix.NFTA_RANGE_TO_DATA))
		r := d.registers[slot(a.Uint32(unix.NFTA_RANGE_SREG))]
		d.say("%s %s-%s", r.text, r.kind.format(from), r.kind.format(to))
	case "lookup":
		d.lookup(a)
	default:
		d.statement(name, a)
	}
}

// destination is the attribute that names the register that an expression writes.
var destination = map[string]uint16{
	"numgen": unix.NFTA_NG_DREG, "hash": unix.NFTA_HASH_DREG, "fib": unix.NFTA_FIB_DREG, "rt": unix.NFTA_RT_DREG,
	"socket": 2, "osf": 1, "exthdr": unix.NFTA_EXTHDR_DREG, "tunnel": 2, "xfrm": 1,
}

// slot numbers registers in words of four bytes: those of sixteen have numbers of
// their own (enum nft_registers).
func slot(number uint32) uint32 {
	if number >= unix.NFT_REG32_00 {
		return number - unix.NFT_REG32_00
	}
	return 4 * (number - 1)
}

func (d *describer) load(number uint32, what loaded) { d.registers[slot(number)] = what }

// read is what is in a register, and in those behind it that were loaded with it.
func (d *describer) read(number uint32) string {
	first, found := d.registers[slot(number)]
	if !found {
		return "?"
	}
	parts := []string{first.text}
	for at, last := slot(number), first; ; last = d.registers[at] {
		at += max(1, last.kind.words)
		if _, found := d.registers[at]; !found {
			return strings.Join(parts, " . ")
		}
		parts = append(parts, d.registers[at].text)
	}
}

// set says that something is set to what a register holds.
func (d *describer) set(key loaded, number uint32) {
	text := d.read(number)
	if raw := d.registers[slot(number)].raw; raw != nil {
		text = key.kind.format(raw)
	}
	d.say("%s set %s", key.text, text)
}

func value(a nlmsg.Attributes) []byte { return a.Get(unix.NFTA_DATA_VALUE) }

func (d *describer) mask(a nlmsg.Attributes) {
	r := d.registers[slot(a.Uint32(unix.NFTA_BITWISE_SREG))]
	r.mask = value(a.Get(unix.NFTA_BITWISE_MASK))
	if xor := value(a.Get(unix.NFTA_BITWISE_XOR)); len(strings.Trim(string(xor), "\x00")) > 0 {
		r.text = fmt.Sprintf("(%s & 0x%s ^ 0x%s)", r.text, hex.EncodeToString(r.mask), hex.EncodeToString(xor))
		r.mask, r.kind = nil, kind{}
	}
	d.load(a.Uint32(unix.NFTA_BITWISE_DREG), r)
}

func (d *describer) immediate(a nlmsg.Attributes) {
	data := a.Get(unix.NFTA_IMMEDIATE_DATA)
	if v := data.Get(unix.NFTA_DATA_VERDICT); v != nil {
		d.say("%s", strings.TrimSpace(verdict(v.Uint32(unix.NFTA_VERDICT_CODE))+" "+v.String(unix.NFTA_VERDICT_CHAIN)))
		return
	}
	number := value(data)
	d.load(a.Uint32(unix.NFTA_IMMEDIATE_DREG), loaded{text: guess(number), raw: number, kind: kind{words: uint32(len(number)+3) / 4}})
}

// operators of comparisons (enum nft_cmp_ops).
var operators = []string{"", "!= ", "< ", "<= ", "> ", ">= "}

func (d *describer) compare(a nlmsg.Attributes) {
	r := d.registers[slot(a.Uint32(unix.NFTA_CMP_SREG))]
	delete(d.registers, slot(a.Uint32(unix.NFTA_CMP_SREG)))
	data, op := value(a.Get(unix.NFTA_CMP_DATA)), a.Uint32(unix.NFTA_CMP_OP)
	if int(op) >= len(operators) {
		return
	}
	zero := len(strings.Trim(string(data), "\x00")) == 0
	switch {
	case r.mask != nil && zero && op == unix.NFT_CMP_NEQ && r.kind.bits != nil:
		d.say("%s %s", r.text, r.kind.format(r.mask)) // one of these bits
	case r.mask != nil && r.kind.address():
		d.say("%s %s%s/%d", r.text, operators[op], r.kind.format(data), ones(r.mask))
	case r.mask != nil:
		d.say("%s & %s %s%s", r.text, r.kind.format(r.mask), map[bool]string{true: "== ", false: operators[op]}[op == 0], r.kind.format(data))
	default:
		d.say("%s %s%s", r.text, operators[op], r.kind.format(data))
	}
}

func (d *describer) lookup(a nlmsg.Attributes) {
	key, set := d.read(a.Uint32(unix.NFTA_LOOKUP_SREG)), "@"+a.String(unix.NFTA_LOOKUP_SET)
	const inverted = 1 // NFT_LOOKUP_F_INV
	switch dreg := a.Get(unix.NFTA_LOOKUP_DREG); {
	case dreg == nil && a.Uint32(unix.NFTA_LOOKUP_FLAGS)&inverted != 0:
		d.say("%s != %s", key, set)
	case dreg == nil:
		d.say("%s %s", key, set)
	case dreg.Number() == 0:
		d.say("%s vmap %s", key, set)
	default:
		clear(d.registers)
		d.load(dreg.Number(), loaded{text: key + " map " + set})
		return
	}
	clear(d.registers)
}
