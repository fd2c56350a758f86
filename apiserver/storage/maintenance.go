package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maintenance takes care of the embedded etcd's file.
type maintenance struct {
	// quota is how large the file may grow, in bytes.
	quota int64
	// period is how often the file is looked at. Old revisions are compacted every
	// five minutes, which makes room inside the file.
	period time.Duration
	// small is the size up to which unused room in the file doesn't matter.
	small int64
	// rescued is when room was made last in a file that had reached its quota, and
	// again is after what time that is tried once more.
	rescued time.Time
	again   time.Duration
	// defragment makes the file as small as it can be.
	defragment func() error
	// leaderDefers is how many periods a leader lets the other members go first, and waited how
	// many it has waited.
	leaderDefers, waited int
}

func usualMaintenance() maintenance {
	return maintenance{quota: 8 << 30, period: time.Minute, small: 64 << 20, again: 10 * time.Minute, leaderDefers: 5}
}

// maintain gives unused room back to the file system, and lets etcd write again
// once it is below its quota, until ctx is done.
// defragment is etcd's own: the client of an etcd in this process has none that
// works.
func (b *Backend) maintain(ctx context.Context, m maintenance, defragment func() error) {
	m.defragment = defragment
	tick := time.NewTicker(m.period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := b.unlessRemoved(func() error { return m.once(ctx, b.Client.Client) })
		if err != nil && !errors.Is(err, errRemoved) && ctx.Err() == nil {
			slog.Warn("etcd could not be maintained", "error", err)
		}
	}
}

func (m *maintenance) once(ctx context.Context, client *clientv3.Client) error {
	status, err := client.Status(ctx, "")
	if err != nil {
		return fmt.Errorf("get status: %w", err)
	}
	alarm, err := ownAlarm(ctx, client, status.Header.MemberId)
	if err != nil {
		return err
	}
	rescue := alarm != nil && time.Since(m.rescued) >= m.again
	if rescue {
		if err := m.rescue(ctx, client, status.Header.Revision); err != nil {
			return err
		}
	}
	switch {
	case rescue:
		if status, err = m.shrink(ctx, client, status); err != nil {
			return err
		}
	case !m.wastes(status.DbSize, status.DbSizeInUse):
		m.waited = 0
	default:
		if status, err = m.shrinkInTurn(ctx, client, status); err != nil {
			return err
		}
	}
	if alarm == nil || status.DbSize > m.quota/10*9 {
		return nil
	}
	if _, err := client.AlarmDisarm(ctx, alarm); err != nil {
		return fmt.Errorf("disarm alarm: %w", err)
	}
	slog.Info("etcd is below its quota again and takes writes")
	return nil
}

// wastes says whether more than half of a file of some size is unused.
// Defragmenting takes as much room as is used, and about a second per 100 MB, in
// which etcd doesn't answer.
func (m *maintenance) wastes(size, used int64) bool { return size > m.small && used < size/2 }

const (
	// defragmenting is the key of the member that defragments its file.
	defragmenting = ownPrefix + "defragmenting"
	// turnSeconds is how long a member has its turn at most, should it die meanwhile.
	turnSeconds = 600
)

// shrinkInTurn makes the file smaller unless another member is at that: a member that
// defragments doesn't answer, and most of them must. The leader comes last, since the
// others elect another one meanwhile.
func (m *maintenance) shrinkInTurn(ctx context.Context, client *clientv3.Client, status *clientv3.StatusResponse) (*clientv3.StatusResponse, error) {
	members, err := client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	if len(members.Members) == 1 {
		return m.shrink(ctx, client, status)
	}
	if status.Leader == status.Header.MemberId && m.waited < m.leaderDefers {
		m.waited++
		return status, nil
	}
	end, mine, err := takeTurn(ctx, client, status.Header.MemberId)
	if err != nil || !mine {
		return status, err // another one's: the next period
	}
	m.waited = 0
	after, err := m.shrink(ctx, client, status)
	return after, errors.Join(err, end(ctx))
}

// takeTurn makes a member the one that defragments, unless there is one, until end is
// called.
func takeTurn(ctx context.Context, client *clientv3.Client, member uint64) (end func(context.Context) error, mine bool, err error) {
	grant, err := client.Grant(ctx, turnSeconds)
	if err != nil {
		return nil, false, fmt.Errorf("take turn: %w", err)
	}
	end = func(ctx context.Context) error {
		if _, err := client.Revoke(ctx, grant.ID); err != nil {
			return fmt.Errorf("end turn: %w", err)
		}
		return nil
	}
	taken, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(defragmenting), "=", 0)).
		Then(clientv3.OpPut(defragmenting, fmt.Sprintf("%x", member), clientv3.WithLease(grant.ID))).Commit()
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("take turn: %w", err), end(ctx))
	}
	if !taken.Succeeded {
		return nil, false, end(ctx)
	}
	return end, true, nil
}

// rescue drops all old revisions of a store that has reached its quota. What
// compacts every five minutes notes that in the store, which takes no writes now.
// Clients that watch from an old revision list anew.
func (m *maintenance) rescue(ctx context.Context, client *clientv3.Client, revision int64) error {
	slog.Error("etcd has reached its quota: objects can be read and deleted only; compacting and defragmenting", "quota", bytes(uint64(m.quota)), "retry-in", m.again)
	m.rescued = time.Now()
	_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// shrink makes etcd's file smaller, and returns what etcd says then.
func (m *maintenance) shrink(ctx context.Context, client *clientv3.Client, before *clientv3.StatusResponse) (*clientv3.StatusResponse, error) {
	began := time.Now()
	if err := m.defragment(); err != nil {
		return nil, fmt.Errorf("defragment: %w", err)
	}
	status, err := client.Status(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("get status: %w", err)
	}
	slog.Info("etcd's file was defragmented", "before", bytes(uint64(before.DbSize)), "now", bytes(uint64(status.DbSize)), "took", time.Since(began))
	return status, nil
}

// ownAlarm is a member's own alarm about its size; nil if there is none.
func ownAlarm(ctx context.Context, client *clientv3.Client, self uint64) (*clientv3.AlarmMember, error) {
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list alarms: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm == pb.AlarmType_NOSPACE && alarm.MemberID == self {
			return (*clientv3.AlarmMember)(alarm), nil
		}
	}
	return nil, nil
}
