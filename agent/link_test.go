package agent

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestAgentTells what it has in force, what it left out, and what it is behind with.
func TestAgentTells(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, "")
	r.node(firstAddress, "")
	r.config.Socket = filepath.Join(t.TempDir(), agentlink.SocketName)
	r.config.ZPages.Version = "1.2.3"
	frontend := model.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Proto: model.TCP}
	r.result.LeftOut = []kernel.LeftOut{{Frontend: frontend, Why: errInjected}}
	r.start()
	client := agentlink.New(r.config.Socket)
	var status agentlink.Status
	r.eventually("the agent tells of itself", func() bool {
		var err error
		status, err = client.Status(t.Context())
		return err == nil && status.Services == 1 && len(status.LeftOut) == 1
	})
	if status.Version != "1.2.3" || status.Node != "here" || status.Mode != "nftables" || status.Applied.IsZero() ||
		status.LeftOut[0].Name != "default/web" || !strings.Contains(status.LeftOut[0].What, errInjected.Error()) {
		t.Errorf("%+v", status)
	}
	table, err := client.Table(t.Context())
	if err != nil || table.String() != r.table("nftables").String() {
		t.Errorf("the table is\n%s\nerror %v, want\n%s", table, err, r.table("nftables"))
	}
	decide := func() explain.Decision {
		t.Helper()
		view, err := client.Decide(t.Context(), []model.Key{frontend}, explain.Source{})
		if err != nil || view.Node != "here" || len(view.Decisions) != model.NumOrigins {
			t.Fatalf("%+v, error %v", view, err)
		}
		return view.Decisions[0]
	}
	if d := decide(); d.Action != "forwarded" || len(d.Candidates) != 1 || d.Candidates[0].Why != "ready" {
		t.Errorf("%+v", d)
	}
	r.mu.Lock()
	r.applied["nftables"] = []error{errInjected, errInjected, errInjected, errInjected, errInjected, errInjected}
	r.mu.Unlock()
	r.do("delete endpointslices default/web-1")
	r.eventually("what is in force is told, not what should be", func() bool {
		d := decide()
		return d.Action == "forwarded" && len(d.Candidates) == 1 && strings.Contains(d.Candidates[0].Why, "gone from the API")
	})
	if status, err = client.Status(t.Context()); err != nil || status.Waiting.IsZero() {
		t.Errorf("a change waits, and the agent says %+v, error %v", status, err)
	}
}
