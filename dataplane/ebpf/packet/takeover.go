package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	return i.conns.importFlow(f, tcConn{Id: i.id, Seen: i.now - silent, Memo: forgotten}, i.settings)
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
