package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/internal/ahead"
	"github.com/fairway-net/fairway/kube/notices"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestAhead: of a rule that drops packets to a port before they come to a Service, the agent
// says once which Services it concerns, and tells those who ask as long as it is there.
func TestAhead(t *testing.T) {
	ns := netnstest.New(t)
	port := []byte{0, 80}
	var rules []ahead.Rule
	if err := ns.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "theirs"})
		chain := conn.AddChain(&nftables.Chain{
			Table: table, Name: "early", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		})
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port}, &expr.Verdict{Kind: expr.VerdictDrop},
		}})
		if err := conn.Flush(); err != nil {
			return err
		}
		rules, err = ahead.Read(t.Context())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	edit := model.NewTable().Edit()
	for i, name := range []string{"default/web:http", "default/api:", "default/other:"} {
		pool := &model.Pool{ID: model.PoolID{Name: name, Proto: model.TCP}}
		edit.SetPool(pool)
		f := &model.Frontend{Key: model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: uint16(80 + i/2), Proto: model.TCP}, Name: name}
		for o := range f.Routes {
			f.Routes[o].Pool = pool.ID
		}
		edit.SetFrontend(f)
	}
	found := concerned(rules, edit.Table())
	if len(found) != 1 || !slices.Equal(found[0].Services, []string{"default/api", "default/web"}) {
		t.Fatalf("found %+v", found)
	}
	a := &Agent{config: Config{Log: slog.New(slog.DiscardHandler)}, events: &events{Writer: notices.New(nil, "node", slog.New(slog.DiscardHandler))}}
	for range 2 {
		a.reportAhead(found)
	}
	told := a.events.Drain()
	if len(told) != 1 || told[0].Reason != reasonAhead || !strings.Contains(told[0].Message, "table inet theirs, chain early drops packets to port 80, before they come to default/api, default/web") {
		t.Errorf("told %+v", told)
	}
	a.reportAhead([]agentlink.Ahead{})
	a.reportAhead(found)
	if told := a.events.Drain(); len(told) != 1 {
		t.Errorf("%d Events of a rule that is there again", len(told))
	}
}

// TestProgramsAhead: in a mode that translates before netfilter, programs of others are told of
// in the same way.
func TestProgramsAhead(t *testing.T) {
	found, err := whoIsAhead(t.Context(), dataplane.Kind{Ahead: func() ([]string, error) { return []string{"shaper at eth0 ingress"}, nil }}, model.NewTable())
	if err != nil || len(found) != 1 || !found[0].More {
		t.Fatalf("found %+v, %v", found, err)
	}
	a := &Agent{config: Config{Log: slog.New(slog.DiscardHandler)}, events: &events{Writer: notices.New(nil, "node", slog.New(slog.DiscardHandler))}}
	a.reportAhead(found)
	told := a.events.Drain()
	if len(told) != 1 || told[0].Message != "the program shaper at eth0 ingress sees packets and may keep them, before they come to Services" {
		t.Errorf("told %+v", told)
	}
}
