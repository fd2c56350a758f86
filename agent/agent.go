// Package agent is the loop of one node: it watches the API, compiles what it
// learns to a table of traffic, and keeps the kernel in line with that table.
package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce/speaker"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/metrics"
	"github.com/fairway-net/fairway/dns/node"
	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/endpoint/healthports"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/internal/httpports"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/latest"
	"github.com/fairway-net/fairway/internal/tuning"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/lastknown"
	"github.com/fairway-net/fairway/model"
)

// Config is what an agent is started with.
type Config struct {
	API      *rest.Config
	NodeName string // of the Node object of this machine
	Mode     string // a data plane's name, or AutoMode
	Compile  compile.Config
	Plane    kernel.Options
	// VerifyPeriod is how often the kernel is compared with the table unasked;
	// a change that waits for longer than twice this makes the agent unwell.
	VerifyPeriod time.Duration
	// MinPeriod is from one sync's beginning to that of the next for changes
	// that come later; 0 is no pause.
	MinPeriod time.Duration
	// HealthzAddress and MetricsAddress are where HTTP is served, as host:port;
	// "" serves none. With kube-proxy: 0.0.0.0:10256 and 127.0.0.1:10249.
	HealthzAddress, MetricsAddress string
	// RetryBind has the agent go on, and try again, where such an address can't
	// be opened; otherwise it is an error.
	RetryBind bool
	// Profiling serves pprof at MetricsAddress, and Shown, by names, is what
	// /configz there shows.
	Profiling bool
	Shown     map[string]any
	ZPages    ZPages
	// PrimaryAddress, if valid, is the node's in the place of the first of its
	// family in the Node object.
	PrimaryAddress netip.Addr
	// Conntrack and OOMScoreAdj are set at start; zero values leave them.
	Conntrack   tuning.Conntrack
	OOMScoreAdj *int
	// ServiceMetrics is of how many Services /metrics shows the traffic; 0 of none.
	ServiceMetrics int
	// EndpointMetrics is of how many endpoints it does; 0 of none.
	EndpointMetrics int
	// Updates, if not nil, are configurations to go on with, one after the other.
	Updates <-chan Update
	// Register makes the Node object of this machine: where there is no kubelet.
	Register bool
	// Forward has the kernel forward packets between interfaces.
	Forward bool
	// Publish says what this machine publishes; without a folder it is nothing.
	Publish Publish
	// TuneGC says that the process is this agent's alone, so that it may decide how
	// much memory is left to garbage.
	TuneGC bool
	// Announce announces load balancer addresses to other machines; nil doesn't.
	Announce *speaker.Options
	// DNS serves the cluster's names on this node; nil doesn't.
	DNS *node.Options
	// KnownDir is where what the API said is saved for a start at which no server
	// answers; without one, the planes' state directory, if that isn't the default.
	KnownDir string
	// Socket is where commands of diagnosis ask this agent; "" is nowhere.
	Socket string
	// AgentAddress is where API servers ask this agent for their users, as host:port; ""
	// is nowhere. Only a machine that makes its Node itself answers there.
	AgentAddress string
	// Identity is how the agent shows itself there; nil is as it does to the API.
	Identity agentlink.Identity
	// Started, if not nil, is called once, when the kernel first is as it should
	// be.
	Started func(Started)
	// Gone, if not nil, is set to the machines that are gone, as their peers agree.
	Gone *latest.Value[[]compile.Machine]
	Log  *slog.Logger
}

// sharedState survives when a new Agent takes this one's place in the process.
type sharedState struct {
	planes  *switcher
	metrics *metrics.Metrics
	health  *health
	service *healthports.Ports
	ports   *httpports.Ports
	// startIsOver ends what memory is given to starting beyond the usual.
	startIsOver func()
}

// Agent is a running agent.
type Agent struct {
	sharedState
	config       Config
	client       kubernetes.Interface
	state        *state
	events       *events
	repairs      *repairs
	names        *node.DNS
	checks       *check.Checker
	publish      *publish.Publisher
	reportedMode string         // whose unsupported features have been logged
	leftOut      map[fault]bool // by the last sync, as has been reported
	balance      *speaker.Speaker
	machines     *machines // of the link
	began        time.Time
	started      sync.Once
	listed       sync.Once
	api          *kube.Outage

	toldLeftOut atomic.Pointer[[]agentlink.LeftOut]
	toldAhead   atomic.Pointer[[]agentlink.Ahead] // rules of others that come first
	known       *lastknown.Store                  // nil if nothing is kept for the next start
	// lookedForTraces says that what killed traces have left was looked for.
	lookedForTraces atomic.Bool

	unregistered chan struct{} // has room for one: the Node was deleted, or shall say something else

	configured atomic.Pointer[Config]      // the configuration in force; config is that of the start
	inForce    atomic.Pointer[model.Table] // nil before the first sync that succeeded
	port       atomic.Uint32               // at which API servers are answered; 0 at none
	group      *errgroup.Group             // of what ends with the agent
}

// Mode names the data plane in force.
func (a *Agent) Mode() string { return a.planes.current().mode }

// Switch puts another data plane, or the same with other options, in the place
// of the one in force, without losing a connection, and returns when that is
// done. An error says why it isn't: then the old one stays in force. If ctx ends
// before, so does the attempt.
func (a *Agent) Switch(ctx context.Context, mode string, options kernel.Options) error {
	return a.planes.to(ctx, mode, options)
}

// answerHealthChecks opens the health-check ports of Services, at the addresses of
// node ports: all there are, unless some were selected.
func (a *Agent) answerHealthChecks(s *model.Settings) {
	if checks, changed := a.state.healthChecks(); changed {
		a.service.Want(checks)
	}
	var addrs []netip.Addr
	if a.configured.Load().Compile.NodePorts.Some() {
		addrs = append([]netip.Addr{}, s.NodePortAddrs...)
	}
	a.service.At(addrs)
	a.service.Open()
}

// signal wakes the reader of a channel with room for one, and never waits.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
