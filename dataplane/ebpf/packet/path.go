// Package packet translates packets at the node's interfaces, for everything that isn't
// served at the socket.
//
// path.go is the whole of it, programs.go loads the programs, and tcx.go or clsact.go
// attaches them to what interfaces.go and follow.go find; ahead.go sees who is there before
// them. xdp.go has the program at drivers. conns.go has the connection
// table, turns.go and gc.go end connections in it, drops.go counts lost packets.
// takeover.go and handover.go are about changes of the data plane; sources.go is about rules of
// others that masquerade.
package packet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Path are the programs at the node's interfaces, and what keeps them
// going: it follows interfaces as they come and go, and removes connections
// that have ended.
type Path struct {
	spec  *ebpf.CollectionSpec
	build string // identifies the programs and their constants
	drift func()
	Steps *kernel.Steps
	XDP   kernel.XDPMode // whether drivers may have the program

	mu       sync.Mutex
	store    *maps.Store // of the programs
	netlink  *netlink.Handle
	settings *model.Settings
	programs map[string]*ebpf.Program // as far as they were needed
	attacher attacher
	links    *ebpf.Map
	conns    *connTable
	leaving  *connTable // the pinned one, once connections leave for another plane
	phase    phase
	table    *model.Table
	before   []string        // programs of others before ours
	unserved map[string]bool // interfaces of which it was said that nothing is served there
	keeping  bool            // there may be connections that were left to netfilter
	stop     context.CancelFunc
	done     sync.WaitGroup

	drivers drivers

	endCollecting func() // nil if nobody collects
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
	// release takes programs off the sides that aren't for an interface of this kind.
	release(l netlink.Link, kind linkKind) error
	// forget removes what is left of interfaces that are no more, or of another kind than
	// they were.
	forget(kinds map[int]linkKind) error
	// ahead names the programs of others that see packets at an interface before ours do at
	// these sides.
	ahead(l netlink.Link, sides map[string]string) ([]string, error)
	// remove takes the programs off all interfaces, whichever build they are of.
	remove(live []netlink.Link) error
}

// The sides of an interface, in the order in which programs come: what is
// translated on its way in must be on its way back.
const (
	bridgedSide = "bridged" // an egress side, too
	egressSide  = "egress"
	ingressSide = "ingress"
)

// allSides are the sides in that order.
var allSides = []string{bridgedSide, egressSide, ingressSide}

// bySide are an interface's programs.
type bySide map[string]*ebpf.Program

// New prepares the programs. It changes nothing. drift is called when
// something went wrong that the next attach may put right.
func New(drift func()) (*Path, error) {
	programs, err := Programs()
	if err != nil {
		return nil, fmt.Errorf("read programs: %w", err)
	}
	spec := programs.Copy()
	low, count, err := masqueradePorts()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]uint16{"port_low": low, "port_count": count} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d\n%s", low, count, _TcBytes))
	if drift == nil {
		drift = func() {}
	}
	return &Path{spec: spec, build: hex.EncodeToString(sum[:6]), drift: drift, netlink: h}, nil
}

// Spec is what the programs are made from.
func (p *Path) Spec() *ebpf.CollectionSpec { return p.spec }

// endLoops ends what this process does in the background.
func (p *Path) endLoops() {
	if p.stop != nil {
		p.stop()
		p.done.Wait()
		p.stop = nil
	}
	if p.endCollecting != nil {
		p.endCollecting()
		p.endCollecting = nil
	}
}

// Close ends what this process does. The programs go on.
func (p *Path) Close() error {
	p.endLoops()
	p.mu.Lock()
	defer p.mu.Unlock()
	err := closePrograms(p.programs)
	if p.conns != nil {
		err = errors.Join(err, p.conns.turns.close())
	}
	if p.leaving != nil {
		err = errors.Join(err, p.leaving.m.Close())
	}
	p.programs, p.attacher, p.conns, p.leaving = nil, nil, nil, nil
	p.drivers.mu.Lock()
	p.drivers.at, p.drivers.sent = nil, nil
	p.drivers.mu.Unlock()
	return err
}

// Remove takes the programs off all interfaces, when netfilter has their
// connections. Pins are the caller's to remove.
func (p *Path) Remove(dir string) error {
	if err := p.Close(); err != nil {
		return err
	}
	if err := errors.Join(leaveDrivers(dir), p.Steps.At("drivers left")); err != nil {
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
	if err := errors.Join(a.remove(live), p.Steps.At("packets detached")); err != nil {
		return err
	}
	return errors.Join(conntrack.StopTranslating(sourcesTable), conntrack.StopTranslating(keeper))
}

// Programs are the compiled programs of the packet path, which are read once. The caller
// must not change them.
var Programs = sync.OnceValues(loadTc)
