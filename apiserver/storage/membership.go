package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// MemberInfo is what the members know of one of them.
type MemberInfo struct {
	ID      uint64
	Name    string // "" until it has started
	PeerURL string
	Learner bool
	Leader  bool
}

// Members lists the members, as this one knows them: also while most of them are
// away.
func (b *Backend) Members() []MemberInfo {
	if b.etcd == nil {
		return nil
	}
	var out []MemberInfo
	for _, m := range b.etcd.Cluster().Members() {
		out = append(out, MemberInfo{
			ID: uint64(m.ID), Name: m.Name, PeerURL: strings.Join(m.PeerURLs, ","), Learner: m.IsLearner, Leader: m.ID == b.etcd.Leader(),
		})
	}
	slices.SortFunc(out, func(a, b MemberInfo) int { return strings.Compare(a.Name+a.PeerURL, b.Name+b.PeerURL) })
	return out
}

// ErrBusy says that another server is joining, which goes one at a time.
var ErrBusy = errors.New("another server is joining")

// AddLearner announces a member that is going to join, and returns what its
// Member.Join must be. One that was announced before and hasn't started is the
// same one.
func (b *Backend) AddLearner(ctx context.Context, name, peerURL string) (string, error) {
	list, err := b.Client.MemberList(ctx)
	if err != nil {
		return "", fmt.Errorf("list members: %w", err)
	}
	for _, m := range list.Members {
		if !slices.Contains(m.PeerURLs, peerURL) {
			continue
		}
		if m.Name != "" { // a learner that lost what it had
			if _, err := b.Client.MemberRemove(ctx, m.ID); err != nil {
				return "", fmt.Errorf("remove what is left of %s: %w", name, err)
			}
			break
		}
		return initialCluster(list.Members, name, peerURL), nil
	}
	added, err := b.Client.MemberAddAsLearner(ctx, []string{peerURL})
	switch {
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		return "", ErrBusy
	case errors.Is(err, rpctypes.ErrUnhealthy):
		return "", errors.New("the servers that there are don't reach each other, or have done so for a few seconds only")
	case err != nil:
		return "", fmt.Errorf("add member %s: %w", name, err)
	}
	return initialCluster(added.Members, name, peerURL), nil
}

// removePause is how long a removal waits before it is tried again.
const removePause = 500 * time.Millisecond

// Remove takes a member off the list. Members that have just come to reach each
// other are waited for: etcd believes in that after etcdserver.HealthInterval.
func (b *Backend) Remove(ctx context.Context, id uint64) error {
	_, err := b.Client.MemberRemove(ctx, id)
	for began := time.Now(); errors.Is(err, rpctypes.ErrUnhealthy) && time.Since(began) < etcdserver.HealthInterval+time.Second; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove member: %w", context.Cause(ctx))
		case <-time.After(removePause):
		}
		_, err = b.Client.MemberRemove(ctx, id)
	}
	switch {
	case errors.Is(err, rpctypes.ErrMemberNotEnoughStarted), errors.Is(err, rpctypes.ErrUnhealthy):
		return errors.New("the servers that would stay don't reach each other: most of them must be there")
	case err != nil:
		return fmt.Errorf("remove member: %w", err)
	}
	return nil
}

// initialCluster names all members in etcd's form.
func initialCluster(members []*pb.Member, name, peerURL string) string {
	var out []string
	for _, m := range members {
		called := m.Name
		if slices.Contains(m.PeerURLs, peerURL) {
			called = name
		}
		for _, u := range m.PeerURLs {
			out = append(out, called+"="+u)
		}
	}
	return strings.Join(out, ",")
}

func memberNames(members []*membership.Member) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.Name)
	}
	return out
}
