package agentlink

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// SocketName is the socket's name in an agent's state directory.
const SocketName = "agent.sock"

// The paths of the API.
const (
	statusPath = "/v1/status"
	tablePath  = "/v1/table"
	decidePath = "/v1/decide"
	flowsPath  = "/v1/flows"

	changesPath = "/v1/changes"
	objectsPath = "/v1/objects"
	hostPath    = "/v1/host"
	probePath   = "/v1/probe"
	tracePath   = "/v1/trace"
	trafficPath = "/v1/traffic"

	announcedPath = "/v1/announced"
)

// Status is how an agent is.
type Status struct {
	Version string    `json:"version"` // of the program
	Node    string    `json:"node"`
	Mode    string    `json:"mode"`
	API     string    `json:"api"` // the server's URL
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Applied is when the kernel was last brought in step; zero before the first
	// time.
	Applied time.Time `json:"applied,omitzero"`
	// Waiting is since when a change waits that is not in force; zero if none does.
	Waiting  time.Time `json:"waiting,omitzero"`
	APIAway  float64   `json:"apiAwaySeconds,omitempty"`
	Services int       `json:"services"`
	LeftOut  []LeftOut `json:"leftOut,omitempty"`
	Ahead    []Ahead   `json:"ahead,omitempty"` // rules of others that come before those of Services
	Lacks    []string  `json:"lacks,omitempty"` // what the mode doesn't do
	// Drivers are the interfaces whose driver may forward packets (--xdp), and why one doesn't.
	Drivers []kernel.Driver `json:"drivers,omitempty"`
	// Served are addresses of Services at which a server on the node itself answers.
	Served []netip.Addr `json:"served,omitempty"`
	Plane  Options      `json:"plane"`
	// Conntrack is how full the connection table is; nil if that isn't known.
	Conntrack *Fill `json:"conntrack,omitempty"`
}

// Fill is how full a table is.
type Fill struct {
	Used int `json:"used"`
	Most int `json:"most"`
}

// Change is a change of a Service or of its endpoints that is in force.
type Change struct {
	Service string    `json:"service"`       // "namespace/name"
	Made    time.Time `json:"made,omitzero"` // zero if nobody says
	Heard   time.Time `json:"heard"`         // by the agent
	InForce time.Time `json:"inForce"`
}

// Traffic is what a node's data plane has counted of a Service. It begins at 0 with the Service
// or the mode.
type Traffic struct {
	Connections uint64 `json:"connections"` // new ones, and UDP flows, that got an endpoint
	Refused     uint64 `json:"refused"`     // packets that got none
	// NoEndpoint and NotAllowed are those of Refused of which the mode tells why: there was
	// none, or the source isn't let in.
	NoEndpoint uint64 `json:"noEndpoint"`
	NotAllowed uint64 `json:"notAllowed"`
	// In and Out are bytes from and to clients; 0 where the mode doesn't count them.
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// LeftOut is a part of the table that is not in force.
type LeftOut struct {
	Name string `json:"name,omitempty"` // of the Service port; "" if it is none's
	What string `json:"what"`           // and why
}

// Ahead is a rule of somebody else's that takes packets before they come to Services.
type Ahead struct {
	What     string   `json:"what"` // as in "table ip raw, chain PREROUTING drops packets to port 80"
	Services []string `json:"services"`
	More     bool     `json:"more,omitempty"` // there are others
}

// Options are those of the data plane that another process needs to read what it
// has made.
type Options struct {
	StateDir        string `json:"stateDir,omitempty"`
	Cgroup          string `json:"cgroup,omitempty"`
	IPTablesVariant string `json:"iptablesVariant,omitempty"`
	Scheduler       string `json:"scheduler,omitempty"`
	MasqueradeMark  uint32 `json:"masqueradeMark,omitempty"`
	CountBytes      bool   `json:"countBytes,omitempty"`
}

// OptionsOf are what is told of a data plane's options.
func OptionsOf(o kernel.Options) Options {
	return Options{o.StateDir, o.Cgroup, o.IPTablesVariant, o.Scheduler, o.MasqueradeMark, o.CountBytes}
}

// Kernel are the same as a data plane takes them.
func (o Options) Kernel() kernel.Options {
	return kernel.Options{
		StateDir: o.StateDir, Cgroup: o.Cgroup, IPTablesVariant: o.IPTablesVariant,
		Scheduler: o.Scheduler, MasqueradeMark: o.MasqueradeMark, CountBytes: o.CountBytes,
	}
}

// decideRequest asks what happens to packets.
type decideRequest struct {
	Keys []string       `json:"keys"` // "10.96.0.1:80/tcp"
	From explain.Source `json:"from"`
}

// problem is the body of an answer that isn't one.
type problem struct {
	Error   string `json:"error"`
	Version string `json:"version"` // of the agent
}

// told is a line of the answer to flowsPath.
type told struct {
	Event *flow.Event `json:"event,omitempty"`
	Note  string      `json:"note,omitempty"` // what is missing
	Error string      `json:"error,omitempty"`
	Began bool        `json:"began,omitempty"` // what happens from now on is told
}

// parseKey reads model.Key.String.
func parseKey(text string) (model.Key, error) {
	at, name, _ := strings.Cut(text, "/")
	ap, err := netip.ParseAddrPort(at)
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if err == nil && p.String() == name {
			return model.Key{Addr: ap.Addr(), Port: ap.Port(), Proto: p}, nil
		}
	}
	return model.Key{}, fmt.Errorf("%q is no address, port and protocol such as 10.96.0.1:80/tcp", text)
}
