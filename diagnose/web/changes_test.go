package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// TestPropagation: each node's time for a change is that of what its agent heard at about
// the same time: since it was made if that is known, else since the agent heard of it.
func TestPropagation(t *testing.T) {
	at := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	change := func(made, heard, inForce time.Duration) agentlink.Change {
		c := agentlink.Change{Service: "default/web", Heard: at.Add(heard), InForce: at.Add(inForce)}
		if made != 0 {
			c.Made = at.Add(made)
		}
		return c
	}
	page := func(list ...agentlink.Found) *Page {
		return &Page{agents: &agents{ask: func(context.Context) []agentlink.Found { return list }}}
	}
	node1 := telling(t, "n1", change(-time.Hour, -time.Hour, -time.Hour), change(-30*time.Millisecond, 0, 12*time.Millisecond), change(0, time.Second, 2*time.Second))
	node2 := telling(t, "n2", change(0, 100*time.Millisecond, 150*time.Millisecond))
	silent := agentlink.Found{Node: "n3", Err: context.Canceled}

	times := page(node1, node2, silent).propagation(t.Context())
	if times.notTold != "" {
		t.Errorf("not told: %s", times.notTold)
	}
	got := times.times(Change{Service: "default/web", Time: at})
	if len(got) != 2 || got[0].Node != "n1" || got[0].Seconds != 0.042 || got[0].Since != "made" || got[1].Node != "n2" || got[1].Seconds != 0.05 || got[1].Since != "heard" {
		t.Errorf("times %+v", got)
	}
	if got := times.times(Change{Service: "default/web", Time: at.Add(time.Minute)}); got != nil {
		t.Errorf("another time's change has %+v", got)
	}
	if got := times.times(Change{Service: "default/other", Time: at}); got != nil {
		t.Errorf("another Service's change has %+v", got)
	}
	old := agentlink.Found{Client: agentlink.Elsewhere("node n4", http.DefaultTransport, serverOf(t, http.NotFoundHandler())), Node: "n4"}
	for _, list := range [][]agentlink.Found{{silent}, {old}, nil} {
		if times := page(list...).propagation(t.Context()); times.notTold == "" {
			t.Errorf("%v tell when changes were in force", list)
		}
	}
}

func serverOf(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// telling is an agent that tells of changes.
func telling(t *testing.T, node string, changes ...agentlink.Change) agentlink.Found {
	t.Helper()
	url := serverOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/changes") {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(changes); err != nil {
			t.Error(err)
		}
	}))
	return agentlink.Found{Client: agentlink.Elsewhere("node "+node, http.DefaultTransport, url), Node: node, Status: agentlink.Status{Node: node}}
}
