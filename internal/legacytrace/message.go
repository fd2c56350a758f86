package legacytrace

import (
	"encoding/binary"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// Kind is what a packet has come to.
type Kind string

// The kinds, in the kernel's words.
const (
	Rule   Kind = "rule"   // a rule whose conditions hold
	Return Kind = "return" // the end of a chain that isn't the kernel's
	Policy Kind = "policy" // the end of one of the kernel's
)

// Event is a step of a packet.
type Event struct {
	Family  uint8  // unix.NFPROTO_IPV4 or NFPROTO_IPV6
	Hook    uint8  // unix.NF_INET_...
	Table   string // "nat"
	Chain   string
	Kind    Kind
	Number  int // of the rule in its chain, from 1
	In, Out int // interfaces' indexes
	Packet  []byte
}

// prefix begins what the kernel tells: "TRACE: nat:KUBE-SVC-X:rule:1 ".
const prefix = "TRACE: "

// parse reads what the group was told; false if that isn't a trace.
func parse(message []byte) (e Event, ok bool) {
	const nfgenmsg = 4
	if len(message) < nfgenmsg {
		return e, false
	}
	e.Family = message[0]
	for typ, value := range nlmsg.Attributes(message[nfgenmsg:]).All() {
		switch typ {
		case packetHeader:
			if len(value) >= 3 { // __be16 hw_protocol, __u8 hook
				e.Hook = value[2]
			}
		case packetPrefix:
			ok = e.rule(value.Text())
		case packetPayload:
			e.Packet = value
		case packetIn:
			e.In = int(value.Number())
		case packetOut:
			e.Out = int(value.Number())
		}
	}
	return e, ok && len(e.Packet) > 0 && families[e.Family] != ""
}

// rule reads the prefix. Names of chains may have colons.
func (e *Event) rule(text string) bool {
	text, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ok {
		return false
	}
	table, rest, _ := strings.Cut(text, ":")
	words := strings.Split(rest, ":")
	n := len(words)
	if n < 3 {
		return false
	}
	number, err := strconv.Atoi(words[n-1])
	if err != nil {
		return false
	}
	e.Table, e.Chain, e.Kind, e.Number = table, strings.Join(words[:n-2], ":"), Kind(words[n-2]), number
	return true
}

// Headers are the packet's network header and what is behind it.
func (e *Event) Headers() (network, transport []byte) {
	p := e.Packet
	switch {
	case e.Family == unix.NFPROTO_IPV4 && len(p) >= 20 && len(p) >= int(p[0]&0xf)*4:
		return p, p[int(p[0]&0xf)*4:]
	case e.Family == unix.NFPROTO_IPV6 && len(p) >= 40:
		return p, p[40:]
	}
	return p, nil
}

// fragment reports whether the packet isn't the first of its fragments.
func (e *Event) fragment() bool {
	return e.Family == unix.NFPROTO_IPV4 && len(e.Packet) >= 8 && binary.BigEndian.Uint16(e.Packet[6:])&0x1fff != 0
}
