package explain

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// View is one node's answers: what its agent, or a compiler in its place, says.
type View struct {
	Node      string     `json:"node"`
	Mode      string     `json:"mode,omitempty"` // data plane; "" if no agent was asked
	Decisions []Decision `json:"decisions"`
	// Served are addresses of Services at which a server on the node itself answers (cluster
	// DNS); what is decided holds while it doesn't.
	Served []netip.Addr `json:"served,omitempty"`
	// Differs says what the agent's view and the API's are different in.
	Differs []string `json:"differs,omitempty"`
}

// ServedAt are those of the served addresses that keys have.
func ServedAt(keys []model.Key, served []netip.Addr) []netip.Addr {
	var list []netip.Addr
	for _, at := range served {
		if slices.ContainsFunc(keys, func(k model.Key) bool { return k.Addr == at }) {
			list = append(list, at)
		}
	}
	return list
}

// serves reports whether a server on the node itself answers at a decision's address.
func (v View) serves(d Decision) bool {
	at, _, _ := strings.Cut(d.Frontend, "/")
	to, err := netip.ParseAddrPort(at)
	return err == nil && d.Service != "" && slices.Contains(v.Served, to.Addr())
}

// Decision is what a node does with the first packet of a connection, and why.
type Decision struct {
	Frontend     string     `json:"frontend"`           // "10.96.0.1:80/tcp"
	Service      string     `json:"service,omitempty"`  // "namespace/name:port"; "" if no frontend has the address
	FrontendType string     `json:"entrance,omitempty"` // "cluster IP", "node port", ...
	Origin       string     `json:"origin"`             // "pod", "node" or "outside"
	Source       netip.Addr `json:"source,omitzero"`    // invalid if no address was given
	Action       string     `json:"action"`             // "forwarded", "refused", "dropped" or "not a Service"
	Reason       string     `json:"reason"`
	Masquerade   bool       `json:"masquerade,omitempty"`
	Direct       bool       `json:"directReturn,omitempty"`
	// ClientAddress says whether endpoints see the client's address; "" where that isn't known.
	ClientAddress string `json:"clientAddress,omitempty"`
	// Otherwise is what the node's mode does otherwise.
	Otherwise  []string         `json:"otherwise,omitempty"`
	Sources    []netip.Prefix   `json:"sourceRanges,omitempty"`
	Pool       string           `json:"pool,omitempty"`
	Choice     string           `json:"choice,omitempty"` // how one of several is chosen
	Candidates []CandidateShare `json:"candidates,omitempty"`
}

// CandidateShare is an endpoint of the Service, whether it takes new connections,
// and how many.
type CandidateShare struct {
	Slice    string     `json:"slice,omitempty"`
	Addr     netip.Addr `json:"address"`
	Port     uint16     `json:"port,omitempty"`
	Chosen   bool       `json:"chosen"`
	Draining bool       `json:"draining,omitempty"` // keeps the connections it has
	Share    float64    `json:"share"`              // of new connections, 0 to 1, where weights alone decide
	Why      string     `json:"why"`
	Sees     string     `json:"sees,omitempty"` // SeesClient or SeesNode, of one that is chosen; "" where that isn't known
}

// Decide answers for one packet, which a plane does with as the table says, but for what it
// lacks. The compiler must be the one that made the table, or nil, which leaves no reasons why
// endpoints aren't used.
func Decide(c *compile.Compiler, t *model.Table, plane Plane, q Asked) Decision {
	v := t.Decide(q.packet(t))
	d := Decision{
		Frontend: q.Key.String(), Origin: v.Origin.String(), Source: q.Source,
		Action: actionNames[v.Action], Reason: v.Reason.String(), Masquerade: v.Masquerade, Direct: v.Direct,
	}
	if v.Frontend == nil {
		return d
	}
	d.Service, d.FrontendType, d.Sources = v.Frontend.Name, v.Frontend.FrontendType.String(), v.Frontend.Sources
	pool := v.Pool
	if pool == nil { // the source isn't allowed; the endpoints are of interest all the same
		pool = t.Pool(v.Frontend.Routes[v.Origin].Pool)
	}
	d.Pool, d.Choice = pool.ID.String(), ChoiceOf(pool)
	d.Candidates = candidates(c, pool)
	if v.Action == model.Forward {
		d.see(t, plane, q, v)
	}
	d.Otherwise = plane.otherwise(d, v)
	return d
}

// see says whose address the chosen endpoints see.
func (d *Decision) see(t *model.Table, plane Plane, q Asked, v model.Verdict) {
	if !q.Source.IsValid() { // any client of this origin, none of which is known to be an endpoint
		v.Src, plane.AnswersPass = netip.Addr{}, nil
	}
	backends := make(map[netip.AddrPort]model.Backend, len(v.Pool.Backends))
	for _, b := range v.Pool.Backends {
		backends[b.AddrPort()] = b
	}
	for i, c := range d.Candidates {
		if b, is := backends[netip.AddrPortFrom(c.Addr, c.Port)]; is && c.Chosen {
			d.Candidates[i].Sees = plane.sees(t.Settings, v, b)
		}
	}
	if d.ClientAddress = clientAddress(d.Candidates); d.ClientAddress != "" && d.Direct && plane.lack(kernel.DirectReturn) == nil {
		d.ClientAddress += ", answered directly"
	}
}

// actionNames are what the actions are called in reports.
var actionNames = map[model.Action]string{
	model.Forward: "forwarded", model.Refuse: "refused", model.Discard: "dropped", model.Pass: "not a Service",
}

// ChoiceOf says how a pool chooses one of several.
func ChoiceOf(p *model.Pool) string {
	how := "at random"
	if p.Scheduler != model.DefaultScheduler && p.Scheduler != model.Random {
		how = "by scheduler " + string(p.Scheduler)
	}
	if p.Affinity != 0 {
		how += ", a client stays for " + p.Affinity.String()
	}
	return how
}

func candidates(c *compile.Compiler, pool *model.Pool) []CandidateShare {
	total := 0
	weights := map[netip.AddrPort]int{}
	for _, b := range pool.Backends {
		weights[b.AddrPort()] = int(b.Weight)
		total += int(b.Weight)
	}
	draining := map[netip.AddrPort]bool{}
	for _, b := range pool.Draining {
		draining[b.AddrPort()] = true
	}
	var list []CandidateShare
	late := "in force"
	var known []compile.Candidate
	if c != nil {
		known, late = c.Candidates(pool.ID), "gone from the API; still in force"
	}
	for _, k := range known {
		at := netip.AddrPortFrom(k.Addr, k.Port)
		s := CandidateShare{
			Slice: k.Slice, Addr: k.Addr, Port: k.Port, Why: k.Choice.String(),
			Chosen: k.Choice.Chosen(), Draining: draining[at],
		}
		w, inForce := weights[at]
		switch {
		case s.Chosen && !inForce:
			s.Chosen, s.Why = false, s.Why+"; not in force yet"
		case s.Chosen && total > 0:
			s.Share = float64(w) / float64(total)
		}
		delete(weights, at)
		list = append(list, s)
	}
	for _, b := range pool.Backends { // of a table that is behind its compiler
		if w, left := weights[b.AddrPort()]; left {
			list = append(list, CandidateShare{Addr: b.Addr, Port: b.Port, Chosen: true, Share: float64(w) / float64(max(total, 1)), Why: late})
		}
	}
	return list
}
