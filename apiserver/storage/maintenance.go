package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// quota is how large the embedded etcd's file may grow.
	quota = 8 << 30
	// maintenancePeriod is how often the file is looked at. Old revisions are
	// compacted every five minutes, which makes room inside the file.
	maintenancePeriod = time.Minute
	// smallFile is the size up to which unused room in the file doesn't matter.
	smallFile = 64 << 20
)

// maintain gives unused room back to the file system, and lets etcd write again
// once it is below its quota, until ctx is done.
func (b *Backend) maintain(ctx context.Context) {
	tick := time.NewTicker(maintenancePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := b.unlessRemoved(func() error { return maintainOnce(ctx, b.Client.Client) })
		if err != nil && !errors.Is(err, errRemoved) && ctx.Err() == nil {
			slog.Warn("apiserver: maintain etcd", "err", err)
		}
	}
}

func maintainOnce(ctx context.Context, client *clientv3.Client) error {
	status, err := client.Status(ctx, "")
	if err != nil {
		return fmt.Errorf("get status: %w", err)
	}
	if wastes(status.DbSize, status.DbSizeInUse) {
		began := time.Now()
		if _, err := client.Defragment(ctx, ""); err != nil {
			return fmt.Errorf("defragment: %w", err)
		}
		slog.Info("apiserver: etcd's file is smaller now", "before", bytes(uint64(status.DbSize)), "used", bytes(uint64(status.DbSizeInUse)), "took", time.Since(began))
		if status, err = client.Status(ctx, ""); err != nil {
			return fmt.Errorf("get status: %w", err)
		}
	}
	return disarm(ctx, client, status.DbSize, status.Header.MemberId)
}

// wastes says whether more than half of a file of some size is unused.
// Defragmenting takes as much room as is used, and about a second per 100 MB, in
// which etcd doesn't answer.
func wastes(size, used int64) bool { return size > smallFile && used < size/2 }

// disarm takes a member's own alarm about its size back once there is room.
func disarm(ctx context.Context, client *clientv3.Client, size int64, self uint64) error {
	if size > quota/10*9 {
		return nil
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("list alarms: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm != pb.AlarmType_NOSPACE || alarm.MemberID != self {
			continue
		}
		if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			return fmt.Errorf("disarm alarm: %w", err)
		}
		slog.Info("apiserver: etcd is below its quota again and takes writes")
	}
	return nil
}
