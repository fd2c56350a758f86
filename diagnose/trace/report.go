package trace

import (
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/model"
)

// Outcome is what became of the connection.
type Outcome string

// The outcomes.
const (
	Answered Outcome = "answered"
	Refused  Outcome = "refused"   // an answer says that nobody takes it
	Dropped  Outcome = "dropped"   // a rule of this node took a packet away
	Lost     Outcome = "lost"      // the kernel of this node did, without a rule
	NoAnswer Outcome = "no answer" // it left this node, and nothing came back
	Unseen   Outcome = "not seen"  // no connection came in time
)

// Report is a traced connection.
type Report struct {
	APIVersion string         `json:"apiVersion"` // explain.SchemaVersion
	Kind       string         `json:"kind"`       // "Trace"
	Target     string         `json:"target"`     // as it was typed
	From       explain.Source `json:"from"`
	Node       string         `json:"node,omitempty"`
	Mode       string         `json:"mode,omitempty"` // data plane; "" if no agent was asked
	Answer     string         `json:"answer"`         // one line
	Outcome    Outcome        `json:"outcome"`
	Protocol   string         `json:"protocol,omitempty"`
	Client     netip.AddrPort `json:"client,omitzero"`
	Frontend   netip.AddrPort `json:"frontend,omitzero"`
	Service    string         `json:"service,omitempty"` // "namespace/name:port"
	Endpoint   *Endpoint      `json:"endpoint,omitempty"`
	// Source is what the endpoint sees as the client, if that isn't Client.
	Source netip.AddrPort `json:"source,omitzero"`
	// Result is how it ended for the client; nil if somebody else's connection was
	// watched.
	Result     *Result   `json:"result,omitempty"`
	Began      time.Time `json:"began,omitzero"`
	Packets    []*Packet `json:"packets,omitempty"`
	Drops      []Drop    `json:"drops,omitempty"`
	Plane      []string  `json:"plane,omitempty"` // what the data plane itself says of the connection
	Notes      []string  `json:"notes,omitempty"`
	NotChecked []string  `json:"notChecked,omitempty"`
	Next       []string  `json:"next,omitempty"` // commands

	// Pending are packets that kernels dropped and that may be the connection's; see
	// TakeDrops.
	Pending []Drop `json:"-"`

	decision *explain.Decision
	plane    Plane
}

// Plane is what must be known of a node's data plane; "" as the mode is one that isn't
// known.
type Plane struct {
	Mode string
	// KubeProxyNames says that it has chains of the names that kube-proxy's have.
	KubeProxyNames bool
}

// Endpoint is who was chosen.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	Pod     string         `json:"pod,omitempty"` // "namespace/name"
	Node    string         `json:"node,omitempty"`
	// Elsewhere says that it is on another node than the trace.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// Result is how a connection ended for its client.
type Result struct {
	Outcome Outcome       `json:"outcome"` // Answered, Refused or NoAnswer
	Error   string        `json:"error,omitempty"`
	Took    time.Duration `json:"tookNanoseconds"`
}

// New begins a report.
func New(q explain.Question, node string, plane Plane) *Report {
	return &Report{plane: plane, APIVersion: explain.SchemaVersion, Kind: "Trace", Target: q.Typed, From: q.From, Node: node, Mode: plane.Mode}
}

// Decided notes what the node's agent makes of the connection.
func (r *Report) Decided(d *explain.Decision) {
	r.decision = d
	if d != nil {
		r.Service = d.Service
	}
}

// Connection notes which connection it is.
func (r *Report) Connection(proto model.Protocol, client, frontend netip.AddrPort) {
	r.Protocol, r.Client, r.Frontend = proto.String(), client, frontend
}

// Chosen notes to which endpoint the connection was sent, and what it sees as the
// client.
func (r *Report) Chosen(endpoint, source netip.AddrPort, o *explain.Objects) {
	if !endpoint.IsValid() || endpoint == r.Frontend {
		return
	}
	r.Endpoint = &Endpoint{Address: endpoint}
	if source != r.Client {
		r.Source = source
	}
	r.Endpoint.name(o)
	r.Endpoint.Elsewhere = r.Endpoint.Node != "" && r.Endpoint.Node != r.Node
	if r.decision == nil || r.decision.Action != "forwarded" {
		return
	}
	for _, c := range r.decision.Candidates {
		if netip.AddrPortFrom(c.Addr, c.Port) == endpoint && (c.Chosen || c.Draining) {
			return
		}
	}
	r.Notes = append(r.Notes, "the endpoint is none of those that the agent has in force: fairway doctor "+r.Target)
}

// name finds the pod and the node of an endpoint.
func (e *Endpoint) name(o *explain.Objects) {
	if o == nil {
		return
	}
	for _, p := range o.Pods {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && a.Unmap() == e.Address.Addr() && !p.Spec.HostNetwork {
				e.Pod, e.Node = p.Namespace+"/"+p.Name, p.Spec.NodeName
				return
			}
		}
	}
	for _, slice := range o.Slices {
		for _, one := range slice.Endpoints {
			for _, text := range one.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Unmap() == e.Address.Addr() && one.NodeName != nil {
					e.Node = *one.NodeName
				}
			}
		}
	}
}

// String names an endpoint for people.
func (e *Endpoint) String() string {
	text := e.Address.String()
	switch {
	case e.Pod != "" && e.Node != "":
		return text + " (" + e.Pod + " on " + e.Node + ")"
	case e.Node != "":
		return text + " (on " + e.Node + ")"
	}
	return text
}

// ExitCode is what the command ends with: 0 answered, 1 not, 3 nothing seen.
func (r *Report) ExitCode() int {
	switch r.Outcome {
	case Answered:
		return 0
	case Unseen:
		return 3
	}
	return 1
}
