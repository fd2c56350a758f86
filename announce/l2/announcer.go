package l2

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/l2/responder"
	"github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/kernel/netevents"
)

// Placement says where and how gladly this node announces an address.
type Placement struct {
	// Interfaces by name; nil is all that lead to other machines, or, if the
	// address is in a network of one of these, only that one.
	Interfaces []string
	// Weight among the nodes: the highest announces. Weighted says that nodes have weights.
	Weight   int32
	Weighted bool
}

// Announcer announces addresses on all links of this node.
type Announcer struct {
	cluster *link.Cluster
	log     *slog.Logger
	changed func()
	counts  Counts
	wake    chan struct{}
	recount chan struct{}
	// connections lists those that the node has of addresses; nil if nobody can.
	connections steering.Connections
	steering    *steering.Interfaces
	uncounted   string        // why not, as it was logged last
	counted     time.Time     // that they were listed last
	took        time.Duration // to list and look at them

	mu     sync.Mutex
	wanted map[netip.Addr]Placement // nil before the first Set
	coming map[netip.Addr]Placement // to be asked for
	// standby are addresses whose links are listened on, since the node may announce some later.
	standby map[netip.Addr]Placement
	links   map[int]*running   // by index of the interface
	swept   bool               // what an earlier process left elsewhere is gone
	left    map[netip.Addr]int // connections of addresses that were given up
	// served are all addresses that the data plane has in force, with whether connections to
	// them go on at any node. Looked says that connections of an earlier process were looked
	// for, and revived are the addresses that have some, until their links know.
	served   map[netip.Addr]bool
	own      bool // addresses of Services are the node's own; see AnswerForOwn
	weighted map[netip.Addr]bool
	looked   bool
	revived  map[netip.Addr]Placement
	alone    time.Duration // the kernel answers without an agent before others may take over
}

// running is a link at work.
type running struct {
	*Link
	stop    func()
	follows *atomic.Bool // another process, when it is stopped
	done    chan struct{}
}

// New returns an announcer. Changed is
// called, not to be blocked, after each change of what Status returns.
func New(cluster *link.Cluster, changed func(), log *slog.Logger) *Announcer {
	return &Announcer{cluster: cluster, log: log, changed: changed, wake: make(chan struct{}, 1), recount: make(chan struct{}, 1), links: map[int]*running{}, alone: answersAlone}
}

// KeepConnections says who lists the connections of addresses that this node gave up. Until
// there are none, their new owners lead the packets here, at interfaces that may lead to routers, too. To be called before Run.
func (a *Announcer) KeepConnections(list steering.Connections, at *steering.Interfaces) {
	a.connections, a.steering = list, at
}

// Set says which addresses this node is ready to announce: the data plane has
// them in force. Served are all that it has, also those that the node may not announce, with
// whether connections to them go on at any node.
func (a *Announcer) Set(wanted map[netip.Addr]Placement, served map[netip.Addr]bool) {
	a.mu.Lock()
	first := a.wanted == nil
	a.wanted = make(map[netip.Addr]Placement, len(wanted))
	maps.Copy(a.wanted, wanted)
	a.served, a.weighted = maps.Clone(served), map[netip.Addr]bool{}
	for address, p := range wanted {
		if p.Weighted {
			a.weighted[address] = true
		}
	}
	a.mu.Unlock()
	a.poke()
	if first {
		a.lookAgain()
	}
}

// Expect says which addresses the data plane is about to have in force. The links are asked
// meanwhile whether somebody has them.
func (a *Announcer) Expect(coming map[netip.Addr]Placement) {
	if len(coming) == 0 {
		return
	}
	a.mu.Lock()
	if a.coming == nil {
		a.coming = map[netip.Addr]Placement{}
	}
	maps.Copy(a.coming, coming)
	a.mu.Unlock()
	a.poke()
}

// StandBy says for which addresses links are to be open before there is something to announce:
// a link that is opened has to be listened on for a moment first.
func (a *Announcer) StandBy(addresses map[netip.Addr]Placement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.standby = addresses // the next Set looks at the links
}

// OwnAddresses says whether the data plane's addresses are the node's own: then interfaces are
// looked after as AnswerForOwn has them, also those that come later.
func (a *Announcer) OwnAddresses(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = yes // the next Set looks at the interfaces
}

// Status lists what is known of the addresses on each link.
func (a *Announcer) Status() []Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Status
	for _, l := range a.links {
		list = append(list, l.Status()...)
	}
	slices.SortFunc(list, func(x, y Status) int { return x.Address.Compare(y.Address) })
	return list
}

// Counts are figures of all links.
func (a *Announcer) Counts() *Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.links {
		l.count()
	}
	return &a.counts
}

// Run announces until ctx is done. It works in the network namespace that it is
// called in. Follows is asked at the end whether another process is going to
// announce on this node: then the kernel goes on to answer, where it can, and
// nothing moves. Otherwise all addresses are handed over.
func (a *Announcer) Run(ctx context.Context, follows func() bool) error {
	runtime.LockOSThread() // links' sockets are opened on this thread
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(ctx)
	defer func() { a.stopAll(follows()) }()
	defer cancel()
	network, err := netevents.Open(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return err
	}
	watching := make(chan error, 1)
	go func() {
		watching <- network.Run(ctx, netevents.Handler{Message: func(syscall.NetlinkMessage) { a.poke() }, Lost: a.poke})
	}()
	const lookAgain = 10 * time.Second // an answer of an interface may have failed
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	const lookAtKept = time.Second
	kept := time.NewTicker(lookAtKept)
	defer kept.Stop()
	for {
		if err := a.reconcile(); err != nil {
			a.log.Warn("announcing on layer 2", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watching:
			return err // nil if ctx is done
		case <-a.wake:
		case <-ticker.C:
		case <-kept.C:
			a.lookAgain()
			continue
		case <-a.recount:
			if a.connections != nil {
				a.lookAtKept()
			}
			continue
		}
	}
}

// lookAgain has connections counted.
func (a *Announcer) lookAgain() {
	select {
	case a.recount <- struct{}{}:
	default:
	}
}

func (a *Announcer) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// reconcile starts and ends links, and says to each which addresses it has.
func (a *Announcer) reconcile() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var devices []device
	var err error
	if len(a.wanted)+len(a.served)+len(a.standby) > 0 {
		if devices, err = listDevices(); err != nil {
			return err
		}
	}
	candidates, revived, coming := place(a.wanted, devices), place(a.revived, devices), place(a.coming, devices)
	standby := place(a.standby, devices)
	isUsed := func(index int) bool { return len(candidates[index])+len(revived[index])+len(standby[index]) > 0 }
	a.revived, a.coming = nil, nil
	var errs []error
	for index, l := range a.links {
		ended := false
		select {
		case <-l.done:
			ended = true
		default:
		}
		if !ended && len(candidates[index]) == 0 && a.connections != nil && !l.isIdle() {
			l.Want(core.Wanted{Anywhere: a.served, Weighted: a.weighted}) // it goes on until another node has taken over, and the connections have ended
			continue
		}
		if ended || !isUsed(index) {
			l.stop()
			delete(a.links, index)
			a.changed()
		}
	}
	for _, d := range devices {
		if a.own && (!virtual.MatchString(d.Name) || candidates[d.Index] != nil) {
			errs = append(errs, answerForOwn(d.Name))
		}
		if !isUsed(d.Index) {
			continue
		}
		if a.links[d.Index] == nil {
			if err := a.open(d); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		l := a.links[d.Index]
		l.Expect(coming[d.Index])
		l.Want(core.Wanted{Candidates: candidates[d.Index], Anywhere: a.served, Weighted: a.weighted})
		if kept := revived[d.Index]; len(kept) > 0 && a.connections != nil {
			l.keep(slices.Collect(maps.Keys(kept)))
		}
	}
	if a.wanted != nil && !a.swept {
		a.swept = true
		_, err := responder.Sweep(func(index int) bool { return a.links[index] != nil })
		errs = append(errs, err, a.sweepSteering())
	}
	return errors.Join(errs...)
}

// sweepSteering ends what an earlier process led elsewhere on other interfaces.
func (a *Announcer) sweepSteering() error {
	if a.steering != nil {
		return a.steering.Sweep(steering.Handoff)
	}
	_, err := steering.Sweep(func(int) bool { return false })
	return err
}

func (a *Announcer) open(d device) error {
	l, err := OpenLink(&d.Interface, a.cluster, a.alone, a.steering, &a.counts, a.changed, a.lookAgain, a.log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Link: l, stop: cancel, follows: &atomic.Bool{}, done: make(chan struct{})}
	a.links[d.Index] = r
	go func() {
		defer close(r.done)
		defer a.poke()
		if err := l.Run(ctx, r.follows.Load); err != nil {
			l.log.Warn("announcing ended; it starts again when the interface is back", "error", err)
		}
	}()
	return nil
}

// stopAll ends all links and waits until they have handed over.
func (a *Announcer) stopAll(follows bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.links {
		l.follows.Store(follows)
		l.stop()
	}
	for index, l := range a.links {
		<-l.done
		delete(a.links, index)
	}
}

// device is an interface that leads to other machines.
type device struct {
	net.Interface
	networks []netip.Prefix
}

// virtual are names of interfaces that lead to pods and containers of this
// machine, or nowhere. They are announced on only if an advertisement names them.
var virtual = regexp.MustCompile(`^(lo$|docker|br-[0-9a-f]{12}$|cbr|cni|dummy|virbr|lxc|lxcbr|veth|cali|tunl|flannel|cilium|kube-ipvs|nodelocaldns|fairway|wg|tap|vxlan|geneve|pod[0-9])`)

// listDevices lists the interfaces with a carrier and an Ethernet address.
func listDevices() ([]device, error) {
	links, err := kernel.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	networks, err := networksOf()
	if err != nil {
		return nil, err
	}
	var list []device
	for _, l := range links {
		at := l.Attrs()
		if !isUsable(l, links) {
			continue
		}
		d := device{Interface: net.Interface{Index: at.Index, Name: at.Name, MTU: at.MTU, HardwareAddr: at.HardwareAddr, Flags: at.Flags}, networks: networks[at.Index]}
		list = append(list, d)
	}
	return list, nil
}

// isUsable reports whether an interface has a carrier and an Ethernet address, and no
// bridge, bond or team speaks for it. Interfaces of Open vSwitch are the machine's own.
func isUsable(l netlink.Link, all []netlink.Link) bool {
	at := l.Attrs()
	up := at.Flags&net.FlagUp != 0 && at.OperState != netlink.OperDown && at.OperState != netlink.OperLowerLayerDown
	return up && len(at.HardwareAddr) == 6 && (at.MasterIndex == 0 || l.Type() == "vlan" || l.Type() == "openvswitch" || !isPort(all, at.MasterIndex))
}

// networksOf lists the networks of all interfaces, by index. The kernel lists all
// addresses anyway, whichever interface is asked for.
func networksOf() (map[int][]netip.Prefix, error) {
	addresses, err := kernel.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	networks := map[int][]netip.Prefix{}
	for _, address := range addresses {
		if ip, ok := netip.AddrFromSlice(address.IP); ok {
			ones, _ := address.Mask.Size()
			networks[address.LinkIndex] = append(networks[address.LinkIndex], netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	return networks, nil
}

// isPort reports whether a master is a bridge, bond or team, which speaks for
// its ports; a VRF doesn't.
func isPort(links []netlink.Link, master int) bool {
	for _, l := range links {
		if l.Attrs().Index == master {
			return l.Type() != "vrf"
		}
	}
	return false
}

// place says which addresses each interface is for, by its index.
func place(wanted map[netip.Addr]Placement, devices []device) map[int]map[netip.Addr]int32 {
	placed := map[int]map[netip.Addr]int32{}
	for a, p := range wanted {
		for _, d := range chosen(a, p.Interfaces, devices) {
			if placed[d.Index] == nil {
				placed[d.Index] = map[netip.Addr]int32{}
			}
			placed[d.Index][a] = p.Weight
		}
	}
	return placed
}

func chosen(a netip.Addr, names []string, devices []device) []device {
	if names != nil {
		return slices.DeleteFunc(slices.Clone(devices), func(d device) bool { return !slices.Contains(names, d.Name) })
	}
	var all, near []device
	for _, d := range devices {
		if virtual.MatchString(d.Name) || !slices.ContainsFunc(d.networks, func(n netip.Prefix) bool { return n.Addr().Is4() == a.Is4() }) {
			continue
		}
		all = append(all, d)
		if slices.ContainsFunc(d.networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			near = append(near, d)
		}
	}
	if len(near) > 0 {
		return near
	}
	return all
}
