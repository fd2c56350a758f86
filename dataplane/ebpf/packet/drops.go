package packet

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/kernel"
)

// dropReasons are the reasons for which the programs drop packets that should have
// gone on, in the order of enum drop_reason of bpf/conn.h.
var dropReasons = []string{"table_full", "no_port", "not_written", "no_route", "not_learnt", "changes_hands", "forgotten", "lost_fragment"}

// DropStats tells how many packets the programs dropped, for each reason.
func DropStats(ctx context.Context, dir string) (list []kernel.DropStats, err error) {
	m, err := pins.OpenIfThere(dir, tcMapDrops)
	if err != nil || m == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for i, reason := range dropReasons {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := maps.Sum(m, uint32(i))
		if err != nil {
			return nil, fmt.Errorf("read map drops: %w", err)
		}
		list = append(list, kernel.DropStats{Reason: reason, Packets: n})
	}
	return list, nil
}
