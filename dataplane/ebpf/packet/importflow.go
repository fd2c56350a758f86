package packet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
)

// importFlow makes the entries of a connection of netfilter's: see bpf/conn.h. One that has
// them keeps them, and its turn: netfilter is asked three times for all of its connections, and
// a queue with a turn for each time was made anew again and again.
func (t *connTable) importFlow(f *conntrack.Flow, c tcConn, settings *model.Settings) error {
	to := tupleOf(f.Proto, 0, f.Source, f.Backend)
	client := tupleOf(f.Proto, atIngress, f.Client, f.Frontend)
	answers := c
	c.Kind, answers.Kind = tcKindNETFILTER_CLIENTS, tcKindNETFILTER_ANSWERS
	for _, own := range settings.NodeAddrs {
		if own == f.Client.Addr() { // seen only when it has been translated
			client = tupleOf(f.Proto, atEgress, f.Source, f.Backend)
			c.Kind, answers.Kind = tcKindNETFILTER_OWN_CLIENTS, tcKindNETFILTER_OWN_ANSWERS
		}
	}
	c.Steps = stepsOf(f)
	answers.Steps = c.Steps
	key := tupleOf(f.Proto, atIngress, f.Backend, f.Source)
	isNew, err := t.putNew(key, tupleOf(f.Proto, 0, f.Frontend, f.Client), answers)
	if err != nil {
		return err
	}
	if isNew {
		if err := t.putTurn(&tcTracked{Answers: key, Id: c.Id}); err != nil {
			return err
		}
	}
	_, err = t.putNew(client, to, c)
	return err
}

// stepsOf is what was seen of a connection: enough to know by which packets it
// goes on, and how long it may be silent.
func stepsOf(f *conntrack.Flow) uint8 {
	switch {
	case f.Proto != model.TCP:
		return stepUsed | stepAcks
	case f.TCPState < conntrack.TCPEstablished:
		return 0
	case f.TCPState == conntrack.TCPEstablished:
		return stepUsed | stepAcks
	}
	return stepUsed | stepAcks | stepCloses
}

// idle is how long netfilter remembers a silent UDP flow, less a moment.
type idle struct{ once, stream uint16 }

// of is after how many seconds of silence a flow is forgotten, and for how many it
// has been silent. Until it has lasted for some seconds, netfilter doesn't take it for a
// stream, though both ends may have spoken (nf_conntrack_udp_packet).
func (i idle) of(f *conntrack.Flow) (forgotten uint16, silent uint32) {
	if f.Proto != model.UDP {
		return 0, 0
	}
	forgotten = i.once
	if f.Status&conntrack.Assured != 0 {
		forgotten = i.stream
	}
	if left := f.Expires - f.Expires/8; left < uint32(forgotten) {
		silent = uint32(forgotten) - left
	}
	return forgotten, silent
}

func readIdle() idle {
	read := func(name string, otherwise uint64) uint16 {
		// What can't be read, or isn't there, is as by default.
		if text, err := os.ReadFile("/proc/sys/net/netfilter/" + name); err == nil {
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
				otherwise = n
			}
		}
		return uint16(min(otherwise-otherwise/8, 1<<16-1))
	}
	return idle{once: read("nf_conntrack_udp_timeout", 30), stream: read("nf_conntrack_udp_timeout_stream", 120)}
}

// putNew adds an entry, unless there is one.
func (t *connTable) putNew(key, to tcTuple, c tcConn) (isNew bool, err error) {
	c.To = to
	err = t.m.Insert(&key, &c)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("add connection: %w", err)
	}
	return true, nil
}

func tupleOf(proto model.Protocol, hook uint8, src, dst netip.AddrPort) tcTuple {
	t := tcTuple{Proto: uint8(proto), Hook: hook, Sport: bigEndian16(src.Port()), Dport: bigEndian16(dst.Port())}
	from, to := src.Addr().As16(), dst.Addr().As16()
	for i := range t.Src.Word {
		t.Src.Word[i], t.Dst.Word[i] = native32(from[4*i:]), native32(to[4*i:])
	}
	return t
}

// bigEndian16 turns a port round: objects are for little-endian machines only.
func bigEndian16(n uint16) uint16 { return n<<8 | n>>8 }
