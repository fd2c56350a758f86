// Package speaker announces the load balancer addresses of one node, as MetalLB's
// speaker does: it reads the configuration from the API, has [announce.Decide] say
// what is announced, and drives the links (l2), the routers (bgp) and the ways to
// them (bfd). Its files:
//
//	keep.go     one speaker stays while agents take each other's place
//	speaker.go  the speaker and what it runs
//	input.go    what it is told: tables, Services, the Node
//	hold.go     what is withdrawn stays in force for a moment
//	move.go     other nodes are told before this one leaves, or comes back
//	decide.go   from all of that to the plan, which is carried out
//	keys.go     the keys that nodes sign with, read again and again
//	watch.go    MetalLB's objects, passwords, other speakers
//	status.go   what is announced, and what not and why
//	report.go   when the objects that say so are written
//	kinds.go    those objects, of MetalLB's API
//	metrics.go  the same as metrics
package speaker

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/announce/l2"
	"github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/model"
)

// Options say how load balancer addresses are announced.
type Options struct {
	// Namespace of the objects that say what to announce; v1beta1.DefaultNamespace if "".
	Namespace string
	// Speakers looks for a MetalLB speaker on this node, and waits while there is one.
	Speakers bool
	// IgnoreExcluded announces also from a node with the label that keeps load balancers away.
	IgnoreExcluded bool
}

// Config is what a speaker is started with.
type Config struct {
	Options
	NodeName string // of the Node object of this machine
	// StateDir keeps what must outlive the process; "" keeps nothing.
	StateDir string
	API      *rest.Config
	Client   kubernetes.Interface
	Events   Events
	// Connections lists those that this node has to addresses; nil if nobody can.
	Connections steering.Connections
	// CarriesOn reports whether the data plane goes on with connections that began at other
	// nodes, where Services ask for that. Nil is false.
	CarriesOn func() bool
	// TakesAddresses reports whether the data plane's addresses are the node's own, so that its
	// kernel would answer ARP for them. Nil is false.
	TakesAddresses func() bool
	// Peers says how other nodes are asked whether they are there, and who hears which are gone.
	Peers link.Inquiry
	// Again has the data plane ask again which table to apply; nil if it does by itself.
	Again func()
	Log   *slog.Logger
}

// Events has Events written. No method waits.
type Events interface {
	// ReportNode is about a fault that concerns this node.
	ReportNode(reason, message string)
	// ReportService is about a fault that concerns a Service.
	ReportService(service types.NamespacedName, reason, message string)
	// ReportNormal is about what this node does for a Service.
	ReportNormal(service types.NamespacedName, reason, message string)
}

// Speaker announces the addresses that the data plane has in force. It is told
// of tables before and after they are applied. A nil Speaker announces nothing.
type Speaker struct {
	node, namespace string
	cluster         *link.Cluster
	keysDue         chan struct{} // a node signs with another key, or the Secret has changed
	systemd         string        // systemdDir
	stateAgain      time.Duration // stateAgain
	options         Options
	client          kubernetes.Interface
	metallb         *kube.MetalLB
	log             *slog.Logger
	wake            chan struct{} // there may be a new plan
	changed         chan struct{} // what is announced may have changed
	peersChanged    chan struct{} // passwords may be needed
	servicesWanted  chan struct{} // all Services are to be listed
	routers         routers
	ways            *bfd.Monitor // to routers

	mu          sync.Mutex
	events      Events // of the agent in charge
	connections steering.Connections
	carriesOn   func() bool
	takes       func() bool // TakesAddresses
	again       func()
	peers       link.Inquiry
	quiet       bool   // as takes said last
	complaint   string // of the kernel's ARP answers, as it was logged
	held        held
	missing     map[string]bool // what is not complete yet
	objects     announce.Objects
	services    map[string]announce.Service   // those with addresses that others may reach; all if cluster IPs are announced
	known       announce.Node                 // as its object says
	self        announce.Node                 // by which this node announces
	rival       map[types.NamespacedName]bool // MetalLB's speakers on this node
	inForce     announce.Tracker
	next        announce.Tracker
	leftOut     map[netip.Addr]string // what the data plane has not in force, and why
	plan        announce.Plan
	planned     map[netip.Addr]announce.Announcement // of now, and of addresses that links still have
	faults      []string
	notes       []string
	// conflictsTold are those that Events were written of. They belong to who reports.
	conflictsTold map[string]bool
	told          map[string]string        // problems of Services that Events were written of
	since         map[netip.Addr]time.Time // that routers have been told of an address
	layer2        links                    // nil before the key is known
	steerer       steerer                  // the same
	moving        bool                     // other nodes prepare for what comes after self
	refused       bool                     // the API takes this machine's credential no more
	ends          bool                     // nothing is to be announced any more
}

// routers are told what this node announces; see announce/bgp.
type routers interface {
	// Peers says which routers to hold sessions with.
	Peers([]announce.Peer)
	// Routes says what each is told, and reports whether anything is withdrawn.
	Routes(map[string]map[netip.Prefix]announce.Route) (withdrawn bool)
	Status() []bgp.Status
}

// links answer for addresses on this node's links; see announce/l2.
type links interface {
	OwnAddresses(yes bool)
	StandBy(map[netip.Addr]l2.Placement)
	Expect(map[netip.Addr]l2.Placement)
	Set(wanted map[netip.Addr]l2.Placement, served map[netip.Addr]bool)
	Status() []l2.Status
	Kept() (connections map[netip.Addr]int, unknown int)
	Counts() *l2.Counts
}

// steerer leads packets of connections to their node when routers choose anew among nodes; see
// announce/steering.
type steerer interface {
	// Set says which routers this node has sessions with.
	Set([]steering.Router)
	// Prepare returns once other nodes are prepared for this one to begin or to cease
	// telling routers of addresses.
	Prepare(ctx context.Context, addresses []netip.Addr, leaving bool)
	// Kept is how many connections of before are left.
	Kept() map[netip.Addr]int
}

// partTable is missing until the data plane has a table in force: routers must not
// hear of nothing, when an agent begins, what they have heard of its predecessor.
const partTable = "table"

// partServices is missing while cluster IPs are announced and what their Services say
// isn't known.
const partServices = "services"

// New makes a speaker, which announces nothing before it runs.
func New(config Config) (*Speaker, error) {
	metallb, err := kube.NewMetalLB(config.API)
	if err != nil {
		return nil, err
	}
	n := &Speaker{
		systemd: systemdDir, stateAgain: stateAgain, node: config.NodeName, namespace: cmp.Or(config.Namespace, v1beta1.DefaultNamespace), options: config.Options,
		client: config.Client, metallb: metallb, events: config.Events, connections: config.Connections, carriesOn: config.CarriesOn, takes: config.TakesAddresses, again: config.Again, peers: config.Peers, held: held{}, log: config.Log.With("part", "announce"),
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), peersChanged: make(chan struct{}, 1), servicesWanted: make(chan struct{}, 1),
		missing: map[string]bool{partTable: true}, services: map[string]announce.Service{}, rival: map[types.NamespacedName]bool{},
		told: map[string]string{}, since: map[netip.Addr]time.Time{}, planned: map[netip.Addr]announce.Announcement{},
		objects: announce.Objects{
			Pools: map[string]*v1beta1.IPAddressPool{}, L2Advertisements: map[string]*v1beta1.L2Advertisement{},
			BGPAdvertisements: map[string]*v1beta1.BGPAdvertisement{}, BGPPeers: map[string]*v1beta2.BGPPeer{},
			BFDProfiles: map[string]*v1beta1.BFDProfile{}, Communities: map[string]*v1beta1.Community{}, Passwords: map[string]string{},
		},
	}
	n.joinCluster(config.StateDir)
	sessions := bgp.New(func() { signal(n.changed) }, n.log)
	n.routers = sessions
	n.ways = bfd.New(func() { signal(n.changed) }, sessions.Reset, n.log)
	return n, nil
}

// joinCluster prepares what all links have in common.
func (n *Speaker) joinCluster(stateDir string) {
	file := ""
	if stateDir != "" {
		file = filepath.Join(stateDir, "announcer-"+n.node)
	}
	incarnations, err := link.NewIncarnations(file)
	if err != nil {
		n.log.Warn("if the machine's clock was set back, other nodes may not hear this one for a minute", "error", err)
	}
	n.keysDue = make(chan struct{}, 1)
	n.cluster = &link.Cluster{
		Node: n.node, Keys: link.NewKeys(), Incarnations: incarnations,
		Foreign: &link.Foreign{Heard: func() { signal(n.keysDue) }}, Detector: link.NewDetector(),
	}
}

// run announces until ctx is done, and hands over then. Where the API has none
// of MetalLB's kinds it waits.
func (n *Speaker) run(ctx context.Context) error {
	if !n.metallb.Await(ctx) {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	n.watch(ctx, group)
	group.Go(func() error { n.keepReported(ctx); return nil })
	group.Go(func() error {
		for {
			n.decide()
			select {
			case <-ctx.Done():
				return nil
			case <-n.wake:
			}
		}
	})
	group.Go(func() error { return n.runLinks(ctx) })
	return group.Wait()
}

// runLinks announces on the links, and leads connections there, once the key is known.
func (n *Speaker) runLinks(ctx context.Context) error {
	var k keys
	if !n.awaitKeys(ctx, &k) {
		return nil
	}
	changed := func() { signal(n.changed) }
	layer2 := l2.New(n.cluster, changed, n.log)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { n.keepKeys(ctx, &k); return nil })
	group.Go(func() error { n.watchKeys(ctx); return nil })
	group.Go(func() error { n.cluster.Detector.Run(ctx, n.inquiry()); return nil })
	if n.connections != nil {
		at := steering.NewInterfaces()
		layer2.KeepConnections(n.connectionsTo, at)
		steers := steering.New(at, n.cluster, n.connectionsTo, changed, n.log)
		group.Go(func() error { return steers.Run(ctx, n.isFollowed) })
		n.mu.Lock()
		n.steerer = steers
		n.mu.Unlock()
		signal(n.changed)
	}
	n.mu.Lock()
	n.layer2 = layer2
	n.mu.Unlock()
	signal(n.wake)
	group.Go(func() error { return layer2.Run(ctx, n.isFollowed) })
	return group.Wait()
}

// inquiry is by the agent in charge at each time.
func (n *Speaker) inquiry() link.Inquiry {
	by := func() link.Inquiry {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.peers
	}
	return link.Inquiry{
		Ask:     func(ctx context.Context, node string) link.Answer { return by().Ask(ctx, node) },
		Met:     func(node string) { by().Met(node) },
		Changed: func(gone []string) { by().Changed(gone) },
		IsAlone: func() bool { return by().IsAlone() },
	}
}

// Peers are the other nodes of the links.
func (n *Speaker) Peers() []string {
	if n == nil {
		return nil
	}
	return n.cluster.Detector.Known()
}

// Gone are the nodes that are gone, as their peers on the links agree.
func (n *Speaker) Gone() []string {
	if n == nil {
		return nil
	}
	return n.cluster.Detector.Gone()
}

// connectionsTo lists the connections to addresses, but for those of this machine and its
// pods, which need nobody who announces.
func (n *Speaker) connectionsTo(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
	n.mu.Lock()
	list, table := n.connections, n.inForce.Table() // of the agent in charge now
	n.mu.Unlock()
	found, err := list(addresses)
	if err != nil || table == nil {
		return found, err
	}
	for address, all := range found {
		found[address] = slices.DeleteFunc(all, func(c kernel.Connection) bool { return isInside(table.Settings, c.Client.Addr()) })
	}
	return found, nil
}

// isInside reports whether a client is this machine or a pod.
func isInside(s *model.Settings, client netip.Addr) bool {
	return client.IsLoopback() || slices.Contains(s.NodeAddrs, client) || s.Pods.Matches(client, "")
}

// signal wakes the reader of a channel with room for one, and never waits.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
