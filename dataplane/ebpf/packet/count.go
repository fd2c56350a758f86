package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
)

// CountConnections counts the connections to some addresses that the programs have, whose
// client has not closed them.
func CountConnections(ctx context.Context, dir string, addresses map[netip.Addr]bool) (count map[netip.Addr]int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	count = map[netip.Addr]int{}
	pinned, err := maps.OpenResizable(dir, maps.ConnsMap)
	if err != nil || pinned == nil {
		return count, err
	}
	t := &connTable{m: pinned}
	defer func() { err = errors.Join(err, pinned.Close()) }()
	err = t.each(func(key *tcTuple, c *tcConn) {
		if c.Flags&connAnswer != 0 || c.Flags&connCounted == 0 || c.Steps&(stepCloses|stepResets) != 0 {
			return // one entry of each, of the client's packets
		}
		if a := key.destination().Addr(); addresses[a] {
			count[a]++
		}
	})
	if err != nil {
		return nil, fmt.Errorf("count connections: %w", err)
	}
	return count, nil
}
