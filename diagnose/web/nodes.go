package web

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/kube/ownnode"
)

// Node is a node in the list.
type Node struct {
	Name      string   `json:"name"`
	Ready     bool     `json:"ready"`
	Why       string   `json:"why,omitempty"` // not ready
	Addresses []string `json:"addresses,omitempty"`
	PodCIDRs  []string `json:"podCIDRs,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Mode      string   `json:"mode,omitempty"`    // "" if neither agent nor Node says
	Version   string   `json:"version,omitempty"` // of Fairway
	Agent     *Agent   `json:"agent,omitempty"`   // nil if none can be reached from here
}

// Agent is how the agent of a node is.
type Agent struct {
	Error    string              `json:"error,omitempty"` // why it doesn't answer
	Sync     string              `json:"sync,omitempty"`  // "in step", "behind", ...
	Detail   string              `json:"detail,omitempty"`
	Started  time.Time           `json:"started,omitzero"`
	Applied  time.Time           `json:"applied,omitzero"`
	Services int                 `json:"services"`
	LeftOut  []agentlink.LeftOut `json:"leftOut,omitempty"`
	Lacks    []string            `json:"lacks,omitempty"`
	// Conntrack is how full the connection table is; nil if that isn't known.
	Conntrack *agentlink.Fill `json:"conntrack,omitempty"`
}

// The states of an agent.
const (
	syncInStep   = "in step"
	syncStarting = "starting"
	syncBehind   = "behind"
	syncAway     = "without the API"
)

// Nodes is the list of nodes.
type Nodes struct {
	header
	Found  int    `json:"found"`
	Offset int    `json:"offset"`
	Nodes  []Node `json:"nodes"`
	// Elsewhere are sockets at which no agent answers that says which node it is of.
	Elsewhere []string `json:"elsewhere,omitempty"`
	Error     string   `json:"error,omitempty"` // why there are none
}

// slowSync is how long a change may wait before a node counts as behind.
const slowSync = 2 * time.Second

func agentState(f agentlink.Found) Agent {
	s := f.Status
	a := Agent{Sync: syncInStep, Started: s.Started, Applied: s.Applied, Services: s.Services, LeftOut: s.LeftOut, Lacks: s.Lacks, Conntrack: s.Conntrack}
	switch {
	case f.Err != nil:
		return Agent{Error: f.Err.Error()}
	case s.Applied.IsZero():
		a.Sync, a.Detail = syncStarting, "nothing is in force yet"
	case s.APIAway > 0:
		a.Sync, a.Detail = syncAway, "it goes on with what it knew "+seconds(s.APIAway)+" ago"
	case !s.Waiting.IsZero() && time.Since(s.Waiting) > slowSync:
		a.Sync, a.Detail = syncBehind, "a change waits since "+seconds(time.Since(s.Waiting).Seconds())
	}
	return a
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}

// nodes answers GET /api/v1/nodes?offset=&limit=. Agents whose nodes the user may
// not list are there too.
func (p *Page) nodes(w http.ResponseWriter, r *http.Request) {
	offset, limit, err := pageOf(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	agents := p.agents.found(r.Context())
	answer := Nodes{header: headerOf("Nodes"), Offset: offset}
	p.store.mu.RLock()
	var list []Node
	for _, n := range byName(p.store.nodes) {
		list = append(list, nodeOf(n))
	}
	answer.Error = p.store.missing("nodes")
	p.store.mu.RUnlock()
	for _, a := range agents {
		state := agentState(a)
		i := slices.IndexFunc(list, func(n Node) bool { return n.Name == a.Name() })
		switch {
		case a.Name() == "":
			answer.Elsewhere = append(answer.Elsewhere, state.Error)
			continue
		case i < 0:
			i, list = len(list), append(list, Node{Name: a.Name(), Ready: true})
		}
		list[i].Agent = &state
		if a.Err == nil {
			list[i].Mode, list[i].Version = a.Status.Mode, a.Status.Version
		}
	}
	answer.Found, answer.Nodes = len(list), cut(list, offset, limit)
	reply(w, answer)
}

// versionAnnotation, on a Node that its agent registered, is the program's version.
const versionAnnotation = "fairway.dev/version"

func nodeOf(n *corev1.Node) Node {
	out := Node{
		Name: n.Name, Ready: check.NodeOf(n).Ready, PodCIDRs: n.Spec.PodCIDRs, Zone: n.Labels[corev1.LabelTopologyZone],
		Mode: n.Annotations[ownnode.ModeAnnotation], Version: n.Annotations[versionAnnotation],
	}
	if !out.Ready {
		out.Why = whyNotReady(n)
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	return out
}

// agents asks the agents of this machine, at most once in a while.
type agents struct {
	ask func(context.Context) []agentlink.Found

	mu    sync.Mutex
	asked time.Time
	list  []agentlink.Found
}

// agentsAge is how old the answers of agents may be.
const agentsAge = time.Second

func (a *agents) found(ctx context.Context) []agentlink.Found {
	if a.ask == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.asked) < agentsAge {
		return a.list
	}
	list := a.ask(ctx)
	if ctx.Err() == nil { // else they had no time to answer
		a.list, a.asked = list, time.Now()
	}
	return list
}
