package iptables

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// key is what a packet's destination is looked up by, as bits: the address (32
// or 128 of them, or none among the node ports), the protocol (8) and the
// port (16).
type key [19]byte

const (
	protoBits = 8
	portBits  = 16
)

// makeKey puts a frontend's key into bits.
func makeKey(addrBits int, k model.Key) key {
	var out key
	n := addrBits / 8
	if n > 0 {
		copy(out[:n], k.Addr.AsSlice())
	}
	out[n] = byte(k.Proto)
	binary.BigEndian.PutUint16(out[n+1:], k.Port)
	return out
}

func (k *key) bit(i int) int { return int(k[i/8]>>(7-i%8)) & 1 }

// firstDifference is the first bit in which two keys differ, or -1.
func (k *key) firstDifference(o *key) int {
	for i := range k {
		if x := k[i] ^ o[i]; x != 0 {
			return i*8 + bits.LeadingZeros8(x)
		}
	}
	return -1
}

func (k *key) proto(addrBits int) model.Protocol { return model.Protocol(k[addrBits/8]) }

// prefix is what the first bits of the key say about the address.
func (k *key) prefix(addrBits, bits int) netip.Prefix {
	a, _ := netip.AddrFromSlice(k[:addrBits/8])
	p, _ := a.Prefix(min(bits, addrBits)) // never more than the address has
	return p
}

// portRange is what the first bits say about the port: the lowest, and how
// many bits of it are known.
func (k *key) portRange(addrBits, bits int) (lo, known int) {
	known = max(bits-addrBits-protoBits, 0)
	port := binary.BigEndian.Uint16(k[addrBits/8+1:])
	return int(port &^ (0xffff >> known)), known
}

// match is the matches of a rule for all keys that share the first bits with
// k, as seen from a chain whose keys share fewer.
func (k *key) match(addrBits, bits, parentBits int) string {
	var words []string
	if parentBits < addrBits {
		words = append(words, "-d "+k.prefix(addrBits, bits).String())
	}
	if bits >= addrBits+protoBits {
		proto := k.proto(addrBits).String()
		words = append(words, "-p "+proto)
		if lo, known := k.portRange(addrBits, bits); known > 0 {
			words = append(words, "-m "+proto+" --dport "+ports(lo, lo+1<<(portBits-known)-1))
		}
	}
	return strings.Join(words, " ")
}
