package web

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/flows"
)

// flows answers GET /api/v1/flows?service=&verdict=: connections as they begin and
// end, while somebody listens.
func (p *Page) flows(w http.ResponseWriter, r *http.Request) {
	if p.config.Flows == nil {
		fail(w, http.StatusNotFound, fmt.Errorf("no agent can be reached from here"))
		return
	}
	filter := flows.Filter{Service: r.FormValue("service"), Verdict: r.FormValue("verdict")}
	out := newStream(w)
	out.send("hello", p.config.Version)
	err := p.config.Flows(r.Context(), p.names.get, func(f flows.Record) {
		if filter.Wants(f) {
			out.send("flow", f)
		}
	}, func(note string) { out.send("note", note) })
	if err != nil && r.Context().Err() == nil {
		out.send("note", err.Error())
	}
	// Ended: a browser would ask again at once, so it is told not to.
	out.send("end", nil)
}

// names has the names of addresses for flows, worked out when they are old.
type names struct {
	store *store

	mu  sync.Mutex
	at  time.Time
	all flows.Names
}

// namesAge is how old they may be.
const namesAge = 5 * time.Second

func (n *names) get() flows.Names {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all != nil && time.Since(n.at) < namesAge {
		return n.all
	}
	n.store.mu.RLock()
	defer n.store.mu.RUnlock()
	o := &explain.Objects{Nodes: byName(n.store.nodes)}
	for _, pods := range n.store.pods {
		for _, p := range pods {
			o.Pods = append(o.Pods, p)
		}
	}
	n.all, n.at = flows.NamesOf(o), time.Now()
	return n.all
}
