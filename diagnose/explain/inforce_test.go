package explain

import (
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// TestConfigOf: where a node's table was read and no ranges of pods are given, what the API doesn't
// say of the agent's configuration is the table's.
func TestConfigOf(t *testing.T) {
	pods := model.PodMatch{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	given := model.PodMatch{Interfaces: []string{"cni*"}}
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{Pods: pods})
	key := model.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Proto: model.TCP}
	front := &model.Frontend{Key: key, Name: "shop/web:http", FrontendType: model.ClusterIP}
	front.Routes[model.FromPod].Masquerade = true
	e.SetFrontend(front)
	o := &Objects{}
	o.AddTables(map[string]*model.Table{"n1": e.Table()}, nil)
	if got := o.configOf("n1", compile.Config{}); len(got.Pods.Prefixes) != 1 || !got.MasqueradeAll {
		t.Errorf("of a node with a table: %+v", got)
	}
	if got := o.configOf("n1", compile.Config{Pods: given}); len(got.Pods.Prefixes) != 0 || len(got.Pods.Interfaces) != 1 {
		t.Errorf("what is given doesn't hold: %+v", got)
	}
	if got := o.configOf("n2", compile.Config{}); len(got.Pods.Prefixes) != 0 || got.MasqueradeAll {
		t.Errorf("of a node without a table: %+v", got)
	}
}
