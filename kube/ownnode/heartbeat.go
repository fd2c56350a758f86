package ownnode

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(newSeldom(m.Log.Handler())))
	lease.NewController(clock.RealClock{}, m.Client, m.Name, heartbeatSeconds, nil, heartbeatPeriod, m.Name, corev1.NamespaceNodeLease, owned).Run(ctx)
}

// seldom passes errors on as warnings, and of many only one in a while: a heartbeat
// that fails is tried again soon, and that the API is away is said elsewhere.
type seldom struct {
	slog.Handler
	every time.Duration
	last  *atomic.Int64 // when one was passed on
}

func newSeldom(h slog.Handler) *seldom {
	return &seldom{Handler: h, every: time.Minute, last: new(atomic.Int64)}
}

// Enabled implements slog.Handler.
func (s *seldom) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && s.Handler.Enabled(ctx, slog.LevelWarn)
}

// Handle implements slog.Handler.
func (s *seldom) Handle(ctx context.Context, r slog.Record) error {
	last, now := s.last.Load(), r.Time.UnixNano()
	if last != 0 && now-last < int64(s.every) || !s.last.CompareAndSwap(last, now) {
		return nil
	}
	r.Level, r.Message = slog.LevelWarn, "heartbeat: "+r.Message
	return s.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (s *seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &seldom{s.Handler.WithAttrs(attrs), s.every, s.last}
}

// WithGroup implements slog.Handler.
func (s *seldom) WithGroup(name string) slog.Handler {
	return &seldom{s.Handler.WithGroup(name), s.every, s.last}
}
