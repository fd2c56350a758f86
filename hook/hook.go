package hook

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller"
)

// Config is what a hook is made of.
type Config struct {
	Client    kubernetes.Interface
	Selection Selection
	Target    Target
	// ChangedOnly hands on only the Services that changed, after the first time.
	ChangedOnly bool
	// Lease has one of several processes do the work; nil does it at once.
	Lease *controller.Lease
	Log   *slog.Logger
}

const (
	// merge is how long a change waits for others.
	merge = 50 * time.Millisecond
	// firstRetry and lastRetry are the pauses after failures.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Run drives the target until ctx is done.
func Run(ctx context.Context, config Config) error {
	if config.Lease == nil {
		return lead(ctx, config)
	}
	return config.Lease.Lead(ctx, config.Client, func(ctx context.Context) error { return lead(ctx, config) })
}

// lead is Run where nobody else does the work.
func lead(ctx context.Context, config Config) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: config.Client.CoreV1().Events("")})
	h := newHook(config, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "fairway-hook"}))
	config.Log.Info("driving another load balancer", "target", config.Target.String())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { h.collector.run(ctx, config.Client); return nil })
	group.Go(func() error { h.run(ctx); return nil })
	return group.Wait()
}

// hook is a hook at work.
type hook struct {
	config     Config
	collector  *collector
	events     record.EventRecorder
	wake       chan struct{}
	generation int64
	delivered  snapshot // what the target took last
	first      bool     // nothing was taken yet by this process
	told       map[string]string
}

func newHook(config Config, events record.EventRecorder) *hook {
	h := &hook{config: config, events: events, wake: make(chan struct{}, 1), first: true, told: map[string]string{}}
	h.collector = newCollector(config.Selection, h.changed)
	return h
}

func (h *hook) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run delivers what changes until ctx is done.
func (h *hook) run(ctx context.Context) {
	var retry <-chan time.Time
	pause := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			if !sleep(ctx, merge) {
				return
			}
			if retry != nil {
				continue // the failure's pause holds for changes too
			}
		case <-retry:
		}
		err := h.deliver(ctx)
		switch {
		case err == nil:
			pause, retry = firstRetry, nil
		case ctx.Err() != nil:
			return
		default:
			h.failed(err)
			retry = time.After(pause)
			pause = min(2*pause, lastRetry)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// errPartly is that a target has taken a state, but not for all Services.
var errPartly = errors.New("not all Services are in force")

// deliver hands on the state as it is now, if it isn't what the target took last.
func (h *hook) deliver(ctx context.Context) error {
	now, complete := h.collector.current()
	if !complete {
		return nil
	}
	state := now.full()
	if !h.first {
		if state.Changes = changes(h.delivered, now); len(state.Changes) == 0 {
			return nil
		}
		if h.config.ChangedOnly {
			state.keepChanged()
		}
	}
	if state.Changes == nil {
		state.Changes = []Change{}
	}
	// Grows over restarts as long as clocks don't go back by more than it took to restart.
	h.generation = max(h.generation+1, time.Now().UnixMilli())
	state.Generation = h.generation
	answer, err := h.config.Target.Deliver(ctx, state)
	if err != nil {
		return err
	}
	err = h.take(ctx, now, answer)
	if err == nil {
		h.delivered, h.first = now, false
		h.recovered()
	}
	return err
}

// keepChanged leaves in a state only the Services that its changes are about.
func (s *State) keepChanged() {
	about := map[string]bool{}
	for _, c := range s.Changes {
		about[c.Service] = true
	}
	s.Full = false
	some := []*Service{}
	for _, service := range s.Services {
		if about[service.Key()] {
			some = append(some, service)
		}
	}
	s.Services = some
}
