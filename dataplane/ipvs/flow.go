package ipvs

import (
	"context"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// flows lists the connections that IPVS translates for the servers: conntrack
// knows of another end than where they were sent, and not by its own doing. Those
// that have ended are left out, as making them anew would hold up the others.
//
// When IPVS forgets a connection, it takes conntrack's entry of the same client's port
// and virtual server away (ip_vs_conn_drop_conntrack), whoever's it is by now: if a
// client has used its port again within the two minutes for which IPVS remembers it,
// that is a connection which the next plane has translated. So these are made anew, too.
func (a *actual) flows(ctx context.Context) ([]conntrack.Flow, error) {
	text, err := listConnections()
	if err != nil {
		return nil, err
	}
	known := remembered(text)
	var list []conntrack.Flow
	err = conntrack.Flows(ctx, func(f *conntrack.Flow) {
		if !f.Translated() || f.Ended() || f.Status&conntrack.DstNAT != 0 && !known[inList(f)] {
			return
		}
		key := model.Key{Addr: f.Frontend.Addr(), Port: f.Frontend.Port(), Proto: f.Proto}
		if a.servers[lvs.KeyServer(key)] != nil {
			list = append(list, *f)
		}
	})
	return list, err
}
