package userspace

import (
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/model"
)

// TestListensToDrop: a UDP frontend that nobody serves, and that is for some sources
// alone, has a socket: the kernel would refuse the others, which are to hear nothing.
func TestListensToDrop(t *testing.T) {
	e := model.NewTable().Edit()
	p := &model.Pool{ID: model.PoolID{Name: "default/a:p", Proto: model.UDP}}
	e.SetPool(p)
	r := model.Route{Pool: p.ID}
	f := &model.Frontend{Key: model.Key{Addr: netip.MustParseAddr("203.0.113.1"), Port: 80, Proto: model.UDP}, Routes: [model.NumOrigins]model.Route{r, r, r}}
	e.SetFrontend(f)
	if listens(e.Table(), f) {
		t.Error("a frontend where all are refused has a socket")
	}
	f.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	if !listens(e.Table(), f) {
		t.Error("the kernel refuses sources that aren't let in")
	}
}
