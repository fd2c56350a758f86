package ebpf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// packetPath are the programs at the node's interfaces, and what keeps them
// going: it follows interfaces as they come and go, and removes connections
// that have ended.
type packetPath struct {
	spec  *ebpf.CollectionSpec
	build string // identifies the programs and their constants
	drift func()

	mu       sync.Mutex
	store    *store // of the programs
	netlink  *netlink.Handle
	settings *model.Settings
	programs map[string]*ebpf.Program // as far as they were needed
	attacher attacher
	links    *ebpf.Map
	conns    *connTable
	phase    phase
	table    *model.Table
	keeps    bool // there may be connections that were left to netfilter
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// attacher is a way of putting programs at the two ends of an interface. What
// it puts there stays when the process ends.
type attacher interface {
	// attach makes the programs run at the sides of an interface.
	attach(l netlink.Link, programs bySide) error
	// running reports whether programs of any build run at an interface.
	running(live []netlink.Link) (bool, error)
	// attached reports whether programs of this build run at these sides.
	attached(l netlink.Link, sides []string) (bool, error)
	// forget removes what is left of interfaces that are no more.
	forget(live map[int]bool) error
	// remove takes the programs off all interfaces, whichever build they are of.
	remove(live []netlink.Link) error
}

// The sides of an interface, in the order in which programs come: what is
// translated on its way in must be on its way back.
const (
	egressSide  = "egress"
	ingressSide = "ingress"
)

// bySide are an interface's programs.
type bySide map[string]*ebpf.Program

// newPacketPath prepares the programs. It changes nothing. drift is called when
// something went wrong that the next attach may put right.
func newPacketPath(drift func()) (*packetPath, error) {
	spec, err := loadTc()
	if err != nil {
		return nil, fmt.Errorf("read programs: %w", err)
	}
	low, count, err := masqueradePorts()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]uint16{"port_low": low, "port_count": count} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d\n%s", low, count, _TcBytes))
	if drift == nil {
		drift = func() {}
	}
	return &packetPath{spec: spec, build: hex.EncodeToString(sum[:6]), drift: drift, netlink: h}, nil
}

// object is what the programs are made from.
func (p *packetPath) object() *ebpf.CollectionSpec { return p.spec }

// attach makes the programs of this version run at all interfaces, and begins
// to follow them.
func (p *packetPath) attach(s *store, want *model.Table) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings, p.table = want.Settings, want
	if p.attacher == nil {
		if err := p.begin(s); err != nil {
			return err
		}
	}
	if err := p.enter(want); err != nil {
		return err
	}
	if p.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		p.stop = stop
		if err := p.follow(ctx); err != nil {
			stop()
			p.stop = nil
			return err
		}
		p.done.Go(func() { p.collect(ctx) })
	}
	return nil
}

// enter attaches the programs wherever they aren't yet.
func (p *packetPath) enter(want *model.Table) error {
	live, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	running, err := p.attacher.running(live)
	if err != nil {
		return err
	}
	now, err := p.phase.get()
	if err != nil {
		return err
	}
	if running && now == inForce {
		return p.syncAll()
	}
	if err := p.takeOver(want); err != nil { // or an earlier process was killed while it did that
		return fmt.Errorf("take over: %w", err)
	}
	return nil
}

// load implements path. The programs for tunnels follow when there is one.
func (p *packetPath) load(s *store) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store = s
	if err := p.need("egress", "ingress", "loopback", "release"); err != nil {
		return err
	}
	p.links = s.maps[tcMapLinks]
	p.conns = &connTable{m: s.growing[connsMap], orphans: s.maps[tcMapOrphans], release: p.programs["release"]}
	p.phase = phase{s.maps[tcMapPhase]}
	return nil
}

// begin finds out about the node what attach needs to know.
func (p *packetPath) begin(s *store) (err error) {
	if p.keeps, err = conntrack.KeepsTranslating(keeper); err != nil {
		return err
	}
	p.attacher, err = p.newAttacher(s.dir)
	return err
}

// programPins is where the programs of a build are pinned.
func (p *packetPath) programPins(dir string) string { return filepath.Join(dir, "programs", p.build) }

// need makes programs ready: takes the pinned ones of this build, or loads and
// pins them.
func (p *packetPath) need(names ...string) error {
	var missing []string
	for _, name := range names {
		if p.programs[name] != nil {
			continue
		}
		program, err := ebpf.LoadPinnedProgram(filepath.Join(p.programPins(p.store.dir), name), nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("open program %s: %w", name, err)
		default:
			p.have(name, program)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return p.loadAnew(missing)
}

func (p *packetPath) have(name string, program *ebpf.Program) {
	if p.programs == nil {
		p.programs = map[string]*ebpf.Program{}
	}
	p.programs[name] = program
}

func (p *packetPath) loadAnew(names []string) error {
	spec := p.spec.Copy()
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: p.store.forSpec(spec)})
	if err != nil {
		return explainLoad(err)
	}
	defer collection.Close()
	if err := p.makePins(); err != nil {
		return err
	}
	for _, name := range names {
		program := collection.DetachProgram(name)
		p.have(name, program)
		if err := program.Pin(filepath.Join(p.programPins(p.store.dir), name)); err != nil {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
	}
	return nil
}

// makePins makes the directory for this build's programs, in the place of all
// others.
func (p *packetPath) makePins() error {
	pins := p.programPins(p.store.dir)
	if _, err := os.Stat(pins); err == nil {
		return nil
	}
	if err := os.RemoveAll(filepath.Dir(pins)); err != nil {
		return fmt.Errorf("remove pinned programs: %w", err)
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return fmt.Errorf("pin programs: %w", err)
	}
	return nil
}

func closePrograms(programs map[string]*ebpf.Program) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, program.Close())
	}
	return errors.Join(errs...)
}

// close ends what this process does; the programs go on.
func (p *packetPath) close() error {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
		p.stop = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := closePrograms(p.programs)
	p.programs, p.attacher = nil, nil
	return err
}

// remove takes the programs off all interfaces, when netfilter has their
// connections. Pins are the caller's to remove.
func (p *packetPath) remove(dir string) error {
	if err := p.close(); err != nil {
		return err
	}
	if err := p.leave(dir); err != nil {
		return err
	}
	live, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	a, err := p.newAttacher(dir)
	if err != nil {
		return err
	}
	if err := a.remove(live); err != nil {
		return err
	}
	return conntrack.StopTranslating(keeper)
}

// leave hands the pinned connections over.
func (p *packetPath) leave(dir string) error {
	conns, err := openGrown(dir, connsMap)
	if err != nil || conns == nil {
		return err
	}
	phases, err := openIfThere(dir, tcMapPhase)
	if err != nil {
		return errors.Join(err, conns.close())
	}
	return errors.Join(p.handOver(&connTable{m: conns}, phase{phases}), conns.close(), phases.Close())
}

// openIfThere opens a pinned map; nil if there is none.
func openIfThere(dir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, layout, name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", name, err)
	}
	return m, nil
}

// objects lists the programs that run, as packetObjects those that should.
func (p *packetPath) objects(dir string) ([]kernel.Object, error) {
	a, err := p.newAttacher(dir)
	if err != nil {
		return nil, err
	}
	return p.objectsAt(a)
}

func (p *packetPath) objectsAt(a attacher) ([]kernel.Object, error) {
	live, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var without []string
	some := false
	for _, l := range live {
		sides := slices.Sorted(maps.Keys(sidePrograms[kindOf(l)]))
		if len(sides) == 0 {
			continue
		}
		there, err := a.attached(l, sides)
		if err != nil {
			return nil, err
		}
		if some = some || there; !there {
			without = append(without, l.Attrs().Name)
		}
	}
	if !some {
		return nil, nil
	}
	list := packetObjects()
	if len(without) > 0 {
		list[0].Text += ", but not at " + strings.Join(without, " ")
	}
	return list, nil
}

func packetObjects() []kernel.Object {
	return []kernel.Object{{Kind: "program", Name: "interfaces", Text: "attached"}}
}
