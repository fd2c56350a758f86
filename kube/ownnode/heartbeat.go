package ownnode

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fairway-net/fairway/internal/logdedup"
)

const (
	// heartbeatPeriod is how often a machine says that it lives: three times in
	// the grace that the server gives by default.
	heartbeatPeriod = 3 * time.Second
	// heartbeatSeconds is how long its Lease says that this holds.
	heartbeatSeconds = 10
)

// Heartbeat renews this machine's Lease in kube-node-lease until ctx is done.
// It goes with the Node.
func (m *Node) Heartbeat(ctx context.Context) {
	owned := func(l *coordinationv1.Lease) error {
		node, err := m.Client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
		if err != nil {
			return err // the next heartbeat finds it
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.Name, UID: node.UID}}
		return nil
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(failures{logdedup.New(m.Log.With("part", "heartbeat").Handler())}))
	lease.NewController(clock.RealClock{}, m.Client, m.Name, heartbeatSeconds, nil, heartbeatPeriod, m.Name, corev1.NamespaceNodeLease, owned).Run(ctx)
}

// failures passes errors on as warnings. A heartbeat that fails is tried again soon,
// and that the API is away is said elsewhere: see [logdedup].
type failures struct{ slog.Handler }

// Enabled implements slog.Handler.
func (f failures) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && f.Handler.Enabled(ctx, slog.LevelWarn)
}

// Handle implements slog.Handler.
func (f failures) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelWarn
	return f.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (f failures) WithAttrs(attrs []slog.Attr) slog.Handler {
	return failures{f.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (f failures) WithGroup(name string) slog.Handler { return failures{f.Handler.WithGroup(name)} }
