package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Connections that netfilter translates for another plane stay with it until they
// end: the programs let their packets pass. (They can't be taken from it: what the
// node's own sockets send meets the other plane's rules before the programs, as long as
// those are there.) Connections that the userspace mode's relay has are known by its
// sockets: see relayed in bpf/source.h.

// keeper is the table of nf_tables that has the kernel go on translating them,
// when the other plane's rules have gone.
const keeper = migrate.KeeperTable

// Of bpf/conn.h: enum phase.
const (
	inForce = iota
	aside
	entering
)

// phase is who the packets belong to that have no entry. Without map, programs of
// an earlier version run, which know of nothing.
type phase struct{ m *ebpf.Map }

func (p phase) get() (now uint32, err error) {
	if err := p.m.Lookup(uint32(0), &now); err != nil {
		return 0, fmt.Errorf("read map phase: %w", err)
	}
	return now, nil
}

func (p phase) set(now uint32) error {
	if p.m == nil {
		return nil
	}
	if err := p.m.Put(uint32(0), now); err != nil {
		return fmt.Errorf("write map phase: %w", err)
	}
	return nil
}

// setPinnedPhase is set for a node whose programs another process may have attached.
func setPinnedPhase(dir string, now uint32) error {
	m, err := pins.OpenIfThere(dir, tcMapPhase)
	if err != nil || m == nil {
		return err
	}
	return errors.Join(phase{m}.set(now), m.Close())
}

// takeOver attaches the programs to a node on which none run yet, where another
// plane may be in force. Until they are everywhere, they do nothing. Attaching takes
// long, so netfilter is asked again when it is done: a client that has begun a connection
// meanwhile sends its first packet again after a second, and it must not be taken for
// another's.
func (p *Path) takeOver(want *model.Table) error {
	if err := p.phase.set(aside); err != nil {
		return err
	}
	if err := p.conns.thaw(); err != nil { // a process was killed as it handed them over
		return err
	}
	if _, err := p.importFlows(want); err != nil {
		return err
	}
	if serves, err := migrate.IPVSServes(want); err != nil {
		return err
	} else if serves { // netfilter gets what IPVS has then
		if err := p.keepTranslating(); err != nil {
			return err
		}
	}
	if err := errors.Join(p.Steps.At("packets left aside"), p.syncAll(), p.Steps.At("packets attached")); err != nil {
		return err
	}
	if _, err := p.importFlows(want); err != nil {
		return err
	}
	if err := p.phase.set(entering); err != nil {
		return err
	}
	kernel.Quiesce()
	if err := p.Steps.At("packets entering"); err != nil {
		return err
	}
	if _, err := p.importFlows(want); err != nil { // those that have begun meanwhile
		return err
	}
	return p.phase.set(inForce)
}

// importer gives connections of netfilter's their entries.
type importer struct {
	conns    *connTable
	settings *model.Settings
	id       uint64
	now      uint32
	idle     idle
	some     bool // there were any
}

func (p *Path) newImporter(settings *model.Settings) (*importer, error) {
	now, err := monotonic()
	return &importer{conns: p.conns, settings: settings, id: uint64(time.Now().UnixNano()) << 8, now: now, idle: readIdle()}, err
}

func (i *importer) add(f *conntrack.Flow) error {
	i.some, i.id = true, i.id+1
	forgotten, silent := i.idle.of(f)
	return i.conns.importFlow(f, tcConn{Id: i.id, Seen: i.now - silent, Idle: forgotten}, i.settings)
}

// Import makes the entries of connections that conntrack has just been given.
func (p *Path) Import(flows []conntrack.Flow) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil || p.settings == nil || len(flows) == 0 {
		return nil // the first Apply asks netfilter for all of them
	}
	i, err := p.newImporter(p.settings)
	if err != nil {
		return err
	}
	for n := range flows {
		if err := i.add(&flows[n]); err != nil {
			return err
		}
	}
	return p.keepTranslating()
}

// importFlows makes entries for the connections that netfilter translates for
// frontends, or from others, that may be gone, to backends: those it remembers, and
// they might be taken for ours. It reports whether there are any.
func (p *Path) importFlows(want *model.Table) (bool, error) {
	i, err := p.newImporter(want.Settings)
	if err != nil {
		return false, err
	}
	backends := sync.OnceValue(func() map[model.Key]bool { return backendsOf(want) })
	var failed error
	err = conntrack.Flows(context.Background(), func(f *conntrack.Flow) {
		if !f.Translated() || failed != nil || want.Frontend(keyOf(f.Frontend, f.Proto)) == nil && !backends()[keyOf(f.Backend, f.Proto)] {
			return
		}
		failed = i.add(f)
	})
	if noConntrack(err) {
		return false, nil
	}
	if err := errors.Join(err, failed); err != nil {
		return false, fmt.Errorf("leave connections to netfilter: %w", err)
	}
	if !i.some {
		return false, nil
	}
	return true, p.keepTranslating()
}

// keepTranslating has netfilter go on with connections of its own. Without nf_tables,
// iptables-legacy translates them, which goes on by itself.
func (p *Path) keepTranslating() error {
	p.keeping = true
	if err := conntrack.KeepTranslating(keeper); err != nil && !kernel.IsMissing(err) {
		return err
	}
	return nil
}

func keyOf(at netip.AddrPort, proto model.Protocol) model.Key {
	return model.Key{Addr: at.Addr(), Port: at.Port(), Proto: proto}
}

// backendsOf are all backends of a table.
func backendsOf(t *model.Table) map[model.Key]bool {
	all := map[model.Key]bool{}
	for pool := range t.Pools() {
		for _, list := range [][]model.Backend{pool.Backends, pool.Draining} {
			for i := range list {
				all[keyOf(list[i].AddrPort(), pool.ID.Proto)] = true
			}
		}
	}
	return all
}

// releaseKeeper ends what leaveToNetfilter has begun, when the last of netfilter's
// connections has ended.
func (p *Path) releaseKeeper() error {
	if !p.keeping || p.table == nil {
		return nil
	}
	if serves, err := migrate.IPVSServes(p.table); serves || err != nil {
		return err
	}
	if late, err := p.importFlows(p.table); late || err != nil {
		return err
	}
	p.keeping = false
	return conntrack.StopTranslating(keeper)
}

// noConntrack reports whether an error says that there is no conntrack here.
func noConntrack(err error) bool {
	return kernel.IsMissing(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// importFlow makes the entries of a connection of netfilter's: see bpf/conn.h.
func (t *connTable) importFlow(f *conntrack.Flow, c tcConn, settings *model.Settings) error {
	to := tupleOf(f.Proto, 0, f.Source, f.Backend)
	client := tupleOf(f.Proto, atIngress, f.Client, f.Frontend)
	c.Flags = connNetfilters
	for _, own := range settings.NodeAddrs {
		if own == f.Client.Addr() { // seen only when it has been translated
			client, c.Flags = tupleOf(f.Proto, atEgress, f.Source, f.Backend), connNetfilters|connOwn
		}
	}
	c.Steps = stepsOf(f)
	answers := c
	answers.Flags |= connAnswer
	key := tupleOf(f.Proto, atIngress, f.Backend, f.Source)
	if err := t.putNew(key, tupleOf(f.Proto, 0, f.Frontend, f.Client), answers); err != nil {
		return err
	}
	if err := t.turns.put(&tcTracked{Answers: key, Id: c.Id}); err != nil {
		return err
	}
	c.Flags |= connCounted
	return t.putNew(client, to, c)
}

// stepsOf is what was seen of a connection: enough to know by which packets it
// goes on, and how long it may be silent.
func stepsOf(f *conntrack.Flow) uint8 {
	switch {
	case f.Proto != model.TCP:
		return stepUsed | stepAnswers
	case f.TCPState < conntrack.TCPEstablished:
		return 0
	case f.TCPState == conntrack.TCPEstablished:
		return stepUsed | stepAnswers
	}
	return stepUsed | stepAnswers | stepCloses
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
func (t *connTable) putNew(key, to tcTuple, c tcConn) error {
	c.To = to
	if err := t.m.Insert(&key, &c); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("add connection: %w", err)
	}
	return nil
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
