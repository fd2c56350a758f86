package nftables

import (
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

func setPriority(v value) part {
	return part{"meta priority set " + v.text, append(v.load(0),
		expression(&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: register(0)}))}
}

func goTo(chain string) part { return jumpKind(expr.VerdictGoto, "goto "+chain, chain) }
func jump(chain string) part { return jumpKind(expr.VerdictJump, "jump "+chain, chain) }

func jumpKind(kind expr.VerdictKind, text, chain string) part {
	return part{text, expressions(&expr.Verdict{Kind: kind, Chain: chain})}
}

func dnatTo(f *family, v value) part {
	_, size := datatype([]fieldType{f.addrType})
	return part{"dnat " + f.ip + " to " + v.text, append(v.load(0), expression(&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto),
		RegAddrMin: register(0), RegAddrMax: register(0),
		RegProtoMin: register(int(size) / 4), RegProtoMax: register(int(size) / 4),
		Specified: true,
	}))}
}

// snatTo masquerades what goes to a process of this node, for which there is
// no masquerade: the node seems to talk to itself.
func snatTo(f *family, v value) part {
	return part{"snat " + f.ip + " to " + v.text + " fully-random", append(v.load(0), expression(&expr.NAT{
		Type: expr.NATTypeSourceNAT, Family: uint32(f.nfproto),
		RegAddrMin: register(0), RegAddrMax: register(0), FullyRandom: true,
	}))}
}

func hashed(v value, modulus, seed, offset uint32) value {
	text := fmt.Sprintf("jhash %s mod %d", v.text, modulus)
	if seed != 0 {
		text += fmt.Sprintf(" seed 0x%x", seed)
	}
	if offset != 0 {
		text += fmt.Sprintf(" offset %d", offset)
	}
	return value{text, 1, func(word int) []nlmsg.Builder {
		at := word + 1 // the hash must not overwrite what it reads
		return append(v.load(at), expression(&expr.Hash{SourceRegister: register(at), DestRegister: register(word),
			Length: uint32(v.words * 4), Modulus: modulus, Seed: seed, Offset: offset, Type: expr.HashTypeJenkins}))
	}}
}

func randomIndex(modulus uint32) value {
	return value{fmt.Sprintf("numgen random mod %d", modulus), 1, func(word int) []nlmsg.Builder {
		return expressions(&expr.Numgen{Register: register(word), Modulus: modulus, Type: unix.NFT_NG_RANDOM})
	}}
}

// dynsetDelete is NFT_DYNSET_OP_DELETE (linux/netfilter/nf_tables.h).
const dynsetDelete = 2

// update writes an element from a packet: op is update (with a time) or delete.
func update(op uint32, s *set, key, data value, timeout time.Duration) part {
	text := "update"
	if op == dynsetDelete {
		text = "delete"
	}
	text += " @" + s.name + " { " + key.text
	if timeout != 0 {
		text += fmt.Sprintf(" timeout %ds", int(timeout/time.Second))
	}
	text += " : " + data.text + " }"
	exprs := append(key.load(0), data.load(key.words)...)
	return part{text, append(exprs, expression(&expr.Dynset{
		SrcRegKey: register(0), SrcRegData: register(key.words), SetName: s.name, SetID: s.inBatch(),
		Operation: op, Timeout: timeout}))}
}
