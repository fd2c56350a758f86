package web

import (
	"net/http"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// Traffic is what the nodes have counted of a Service, so far.
type Traffic struct {
	header
	Time  time.Time     `json:"time"`
	Nodes []NodeTraffic `json:"nodes"`
	// NotTold says why there are none; "" if there are.
	NotTold string `json:"notTold,omitempty"`
}

// NodeTraffic is what one node has counted.
type NodeTraffic struct {
	Node  string `json:"node"`
	Mode  string `json:"mode,omitempty"`
	Error string `json:"error,omitempty"` // why it doesn't tell
	agentlink.Traffic
}

// traffic answers GET /api/v1/services/{namespace}/{name}/traffic. It is asked while
// somebody looks: rates are of what was counted from one answer to the next.
func (p *Page) traffic(w http.ResponseWriter, r *http.Request) {
	agents := p.agents.found(r.Context())
	answer := Traffic{header: headerOf("Traffic"), Nodes: make([]NodeTraffic, len(agents))}
	agentlink.Each(r.Context(), agents, func(i int) {
		n := NodeTraffic{Node: agents[i].Name(), Mode: agents[i].Status.Mode}
		err := agents[i].Err
		if err == nil {
			n.Traffic, err = agents[i].Traffic(r.Context(), r.PathValue("namespace")+"/"+r.PathValue("name"))
		}
		if err != nil {
			n.Error = err.Error()
		}
		answer.Nodes[i] = n
	})
	if len(agents) == 0 {
		answer.NotTold = "no agent can be asked from here, and only they count connections"
	}
	answer.Time = time.Now()
	reply(w, answer)
}
