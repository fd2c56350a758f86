package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// ConnectionsTo lists the connections to some addresses that the programs have, whose
// client has not closed them.
func ConnectionsTo(ctx context.Context, dir string, addresses map[netip.Addr]bool) (list map[netip.Addr][]kernel.Connection, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list = map[netip.Addr][]kernel.Connection{}
	pinned, err := maps.OpenResizable(dir, maps.ConnsMap)
	if err != nil || pinned == nil {
		return list, err
	}
	t := &connTable{m: pinned}
	defer func() { err = errors.Join(err, pinned.Close()) }()
	err = t.each(func(key *tcTuple, c *tcConn) {
		if !c.has(tcTraitsHOLDS) || c.Steps&(stepCloses|stepResets) != 0 {
			return // one entry of each, of the client's packets
		}
		if to := key.destination(); addresses[to.Addr()] {
			list[to.Addr()] = append(list[to.Addr()], kernel.Connection{Client: key.source(), Port: to.Port(), Proto: model.Protocol(key.Proto)})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	return list, nil
}
