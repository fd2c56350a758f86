package ebpf

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/model"
)

// When this mode takes the ipvs mode's place, IPVS remembers connections for two
// minutes after their end. It takes an endpoint's answers to a socket that is connected
// to it directly for those of a connection that it has forwarded from the same port, and
// puts the frontend's address into them, which the socket doesn't know. Therefore TCP sockets
// stand by as long as IPVS serves frontends: those of pods are served by the packet
// path, in which the frontend's address is what clients wait for, and those of the node
// by IPVS, until it is removed, and then by the packet path, too. (UDP sockets don't,
// since the packet path would remember their flows, too, and knows no end of them.)

// awaitEvery is how often it is looked whether IPVS has gone.
const awaitEvery = 100 * time.Millisecond

// standby is what sockets wait for.
type standby struct {
	table atomic.Pointer[model.Table]
	stop  func() // ends what waits; nil if nothing does
}

// standBy has sockets stand by if these are the first programs on a node that IPVS
// serves, or if an earlier process was killed while they did.
func (p *socketPath) standBy(s *store, want *model.Table) error {
	m := s.maps[sockMapStandby]
	var now uint32
	if err := m.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("read map standby: %w", err)
	}
	p.standby.table.Store(want)
	if now == 0 {
		if running, err := p.running(s.dir); running || err != nil {
			return err
		}
	}
	serves, err := ipvsServes(want)
	if err != nil {
		return err
	}
	set := func(now uint32) error {
		if err := m.Put(uint32(0), now); err != nil {
			return fmt.Errorf("write map standby: %w", err)
		}
		return nil
	}
	if !serves {
		return set(0)
	}
	if err := set(1); err != nil || p.standby.stop != nil {
		return err
	}
	p.standby.await(func() error { return set(0) })
	return nil
}

// await has something done when IPVS serves no frontends any more.
func (b *standby) await(then func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		tick := time.NewTicker(awaitEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			serves, err := ipvsServes(b.table.Load())
			if err == nil && serves {
				continue
			}
			if err := errors.Join(err, then()); err != nil {
				slog.Warn("Sockets stay with the packet path", "error", err)
			}
			return
		}
	}()
}

// end ends the waiting.
func (b *standby) end() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}

// ipvsServes reports whether IPVS has virtual servers at frontends of the table, or
// remembers connections to them.
func ipvsServes(want *model.Table) (bool, error) {
	for _, list := range []struct {
		file string
		key  func(line string) (model.Key, bool)
	}{{"ip_vs", serverOfIPVS}, {"ip_vs_conn", connectionOfIPVS}} {
		found, err := anyFrontend(want, "/proc/thread-self/net/"+list.file, list.key)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// anyFrontend reports whether a file has a line about a frontend.
func anyFrontend(want *model.Table, file string, key func(line string) (model.Key, bool)) (found bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // no IPVS in this kernel
	}
	if err != nil {
		return false, fmt.Errorf("look for IPVS: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if k, ok := key(lines.Text()); ok && want.Frontend(k) != nil {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("read %s: %w", file, err)
	}
	return false, nil
}

var protocolsOfIPVS = map[string]model.Protocol{"TCP": model.TCP, "UDP": model.UDP, "SCTP": model.SCTP}

// serverOfIPVS reads a line of ip_vs: "TCP  0A60000A:0050 rr", or with an IPv6
// address in brackets. Those of backends begin with an arrow.
func serverOfIPVS(line string) (model.Key, bool) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return model.Key{}, false
	}
	at := strings.LastIndexByte(fields[1], ':')
	if at < 0 {
		return model.Key{}, false
	}
	return keyOfIPVS(fields[0], fields[1][:at], fields[1][at+1:])
}

// connectionOfIPVS reads a line of ip_vs_conn: "TCP 0AF40102 8CE2 0A60000A 0050
// 0AF40002 1F90 ...". Without a client's port it is the memory of session affinity.
func connectionOfIPVS(line string) (model.Key, bool) {
	fields := strings.Fields(line)
	if len(fields) < 7 || fields[2] == "0000" {
		return model.Key{}, false
	}
	return keyOfIPVS(fields[0], fields[3], fields[4])
}

func keyOfIPVS(proto, addr, port string) (model.Key, bool) {
	k := model.Key{Proto: protocolsOfIPVS[proto]}
	n, err := strconv.ParseUint(port, 16, 16)
	if k.Proto == 0 || err != nil {
		return k, false
	}
	k.Port = uint16(n)
	if inner, v6 := strings.CutPrefix(addr, "["); v6 {
		k.Addr, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return k, err == nil
	}
	raw, err := hex.DecodeString(addr)
	if err != nil || len(raw) != 4 {
		return k, false
	}
	k.Addr = netip.AddrFrom4([4]byte(raw))
	return k, true
}
