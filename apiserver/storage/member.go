package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/embed"
	etcdfeatures "go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// Member makes an embedded etcd one of several. Its store may be new, or one
// that was alone until now.
type Member struct {
	Name string
	// Listen is where other members reach this one on this machine; Advertise
	// is how they know it.
	Listen, Advertise netip.AddrPort
	// Local says that Advertise is an address of this machine. Connections to
	// other members then come from it, if it is an IPv4 address: etcd takes no
	// other for that.
	Local bool
	// CAFile, CertFile and KeyFile secure what members say to each other.
	CAFile, CertFile, KeyFile string
	// Join, for a store that is new, names the members to join, this one
	// among them, as Membership.Add returns it. Without it a new store begins a
	// new cluster.
	Join string
}

// URL is the member's peer URL.
func (m *Member) URL() string { return PeerURL(m.Advertise) }

// PeerURL is how members know the one at an address.
func PeerURL(at netip.AddrPort) string { return "https://" + at.String() }

// HasStore says whether an embedded etcd has stored anything in dir.
func HasStore(dir string) bool { return wal.Exist(filepath.Join(dir, "member", "wal")) }

// Members elect a leader when they haven't heard of the last one for
// memberElection. A machine that is briefly overloaded must not lose it.
const (
	memberTick     = 100
	memberElection = 1000
)

// configure sets an embedded etcd up as this member.
func (m *Member) configure(config *embed.Config) {
	config.Name = m.Name
	config.ListenPeerUrls = []url.URL{{Scheme: "https", Host: m.Listen.String()}}
	config.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: m.Advertise.String()}}
	config.InitialCluster = m.Name + "=" + m.URL()
	config.ClusterState = embed.ClusterStateFlagNew
	// The name of a cluster is made of this: two that begin at one address must
	// not take each other for the same.
	config.InitialClusterToken = uuid.NewString()
	if m.Join != "" {
		config.InitialCluster, config.ClusterState = m.Join, embed.ClusterStateFlagExisting
	}
	config.PeerTLSInfo.CertFile, config.PeerTLSInfo.KeyFile = m.CertFile, m.KeyFile
	config.PeerTLSInfo.TrustedCAFile, config.PeerTLSInfo.ClientCertAuth = m.CAFile, true
	// The authority vouches for members only: whoever has its certificate is one,
	// whatever address a connection comes from.
	config.PeerTLSInfo.SkipClientSANVerify = true
	config.TlsMinVersion = "TLS1.3"
	config.TickMs, config.ElectionMs = memberTick, memberElection
	if gate, ok := config.ServerFeatureGate.(featuregate.MutableFeatureGate); ok && m.Local && m.Advertise.Addr().Is4() {
		if err := gate.Set(string(etcdfeatures.SetMemberLocalAddr) + "=true"); err != nil {
			panic(err) // the gate is known: its name is a constant of the same library
		}
	}
}

// errRemoved ends a member that the others have taken off their list.
var errRemoved = errors.New("this server was removed from the cluster: to join again, move the directory away and run `fairway server --join` with a new token")

func stoppedBecause(m *Member) error {
	if m == nil {
		return errors.New("it ended by itself")
	}
	return errRemoved
}

// removed says whether the others have taken this member off their list. etcd
// panics when it is then asked about itself (see unlessRemoved), and ends soon after.
// A member that hears of it from another one's refusal ends before it reads it in
// its log, so one that ends by itself counts as removed, as it does in Failed.
func (b *Backend) removed() bool {
	if b.etcd == nil {
		return false
	}
	select {
	case <-b.etcd.StoppingNotify():
		return true
	default:
		return !b.etcd.IsMemberExist(b.etcd.MemberID())
	}
}

// unlessRemoved asks etcd something about this member. etcd's panic about one that
// was removed, which may happen at any time before or meanwhile, becomes errRemoved.
func (b *Backend) unlessRemoved(ask func() error) (err error) {
	if b.removed() {
		return errRemoved
	}
	defer func() {
		reason := recover()
		switch {
		case reason == nil:
		case b.removed():
			err = errRemoved
		default:
			panic(reason)
		}
	}()
	return ask()
}

// isLearner reports whether this member doesn't vote yet.
func (b *Backend) isLearner() (learner bool, err error) {
	err = b.unlessRemoved(func() error {
		learner = b.etcd.IsLearner()
		return nil
	})
	return learner, err
}

// settleQuietly is how long a member may take to become one that votes without a word.
const settleQuietly = 3 * time.Second

// settle makes a member that has started one that votes, and known at its address.
func (b *Backend) settle(ctx context.Context, m *Member) error {
	self := uint64(b.etcd.MemberID())
	quiet := time.AfterFunc(settleQuietly, func() {
		slog.Info("this server doesn't vote yet: it catches up with the others, or waits for their leader", "name", m.Name)
	})
	defer quiet.Stop()
	for {
		learner, err := b.isLearner()
		if err != nil {
			return err
		}
		if !learner {
			break
		}
		_, err = b.Client.MemberPromote(ctx, self)
		switch {
		case err == nil, errors.Is(err, rpctypes.ErrMemberNotLearner):
			// What this member knows of itself follows.
		case !errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
			slog.Debug("this server could not become a voting member", "error", err)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("become a member that votes: %w", err)
		}
	}
	return DespiteElections(ctx, "tell the other servers of this one's address", func(ctx context.Context) error {
		return b.announceURL(ctx, self, m.URL())
	})
}

// announceURL has the members know this one at a URL.
func (b *Backend) announceURL(ctx context.Context, self uint64, url string) error {
	members, err := b.Client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	for _, one := range members.Members {
		if one.ID != self || slices.Equal(one.PeerURLs, []string{url}) {
			continue
		}
		if _, err := b.Client.MemberUpdate(ctx, self, []string{url}); err != nil {
			return fmt.Errorf("tell the other members of %s: %w", url, err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// awaitMember returns when the member answers, which takes most of them. It
// waits for them as long as it takes, and says so.
func awaitMember(ctx context.Context, server *embed.Etcd, failed <-chan error) error {
	const period = 10 * time.Second
	began := time.Now()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-server.Server.ReadyNotify():
			return nil
		case <-server.Server.StopNotify():
			select {
			case err := <-failed:
				return err
			default:
				return errRemoved
			}
		case err := <-server.Err():
			return err
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			slog.Warn("waiting for other servers: a majority must be there", "members", memberNames(server.Server.Cluster().Members()), "since", time.Since(began).Round(time.Second))
		}
	}
}
