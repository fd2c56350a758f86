package ipvs

import (
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// TestJumpsInOrder: who isn't let in is dropped before anybody is refused, from a plane's
// first table on, and after somebody has put the jumps in another order.
func TestJumpsInOrder(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		p := newTestPlane(t, newFakeIPVS())
		table := everything(t)
		ordered := func(when string) {
			t.Helper()
			for _, tool := range []string{"iptables", "ip6tables"} {
				rules := command(t, "", tool, "-S", "INPUT")
				first, second := strings.Index(rules, "-j "+chainFirewall), strings.Index(rules, "-j "+chainFilter)
				if first < 0 || second < first || strings.Count(rules, "-j ") != 2 {
					t.Errorf("%s, %s:\n%s", when, tool, rules)
				}
			}
		}
		apply(t, p, table, false)
		ordered("at first")
		for _, tool := range []string{"iptables", "ip6tables"} {
			command(t, "", tool, "-D", "INPUT", "1")
		}
		apply(t, p, table, true)
		ordered("after one was deleted")
		for _, tool := range []string{"iptables", "ip6tables"} {
			rule, _, _ := strings.Cut(strings.SplitAfter(command(t, "", tool, "-S", "INPUT"), "\n")[2], "\n")
			command(t, "", tool, "-D", "INPUT", "2")
			command(t, "*filter\n"+strings.Replace(rule, "-A", "-I", 1)+"\nCOMMIT\n", tool+"-restore", "--noflush")
		}
		apply(t, p, table, true)
		ordered("after they were exchanged")
	})
}

// TestNodeByItsOwnAddress: a process of this node that has the asked address for its
// source is masqueraded, whatever its route says. The mark that it is led by has
// that bit, or its packets would go to the pool of outsiders.
func TestNodeByItsOwnAddress(t *testing.T) {
	b := edit(t, model.NewTable())
	b.edit.SetSettings(settings())
	all := b.pool(model.Pool{ID: model.PoolID{Name: "a/web:p", IPv6: true}}, "[fd00:244::2]:80", "[fd00:244::3]:80")
	here := b.pool(model.Pool{ID: model.PoolID{Name: "a/web:p", IPv6: true, Local: true}}, "[fd00:244::2]:80")
	for at, entrance := range map[string]model.FrontendType{"[fd00:96::10]:80": model.ClusterIP, "[fd00:9::1]:30080": model.NodePort} {
		b.frontend(at, entrance, all, false).Routes[model.FromNode].Pool = here
	}
	table := b.table()
	s := newState(defaultMasqueradeMark)
	for f := range table.Frontends() {
		fp := s.footprint(table, f)
		m, there := fp.entries[entry{setID{setFromNode, true}, keyElement(f.Key)}]
		if !there || fp.servers[lvs.ServerID{Mark: m.Value, IPv6: true}] != here {
			t.Errorf("%s: marked %+v of servers %v", f.Key, m, fp.servers)
		}
		if got := m.Value&defaultMasqueradeMark != 0; got != (f.FrontendType == model.ClusterIP) {
			t.Errorf("%s: masqueraded %t by its mark %#x", f.Key, got, m.Value)
		}
		if marksOf(table, defaultMasqueradeMark)[m.Value] != f.Name {
			t.Errorf("%s: its connections aren't counted", f.Key)
		}
	}
}
