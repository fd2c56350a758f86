// Package garbage deletes objects whose owners are gone (metadata.ownerReferences),
// and carries out foreground and orphaning deletion.
package garbage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"

	"github.com/fairway-net/fairway/internal/queue"
)

const (
	workers = 8
	// firstFill is how long the work waits for the graph to be complete.
	// Nothing is deleted on the graph's word alone, so going on without is
	// safe; it costs more questions.
	firstFill = 30 * time.Second
)

// Controller is the garbage collector.
type Controller struct {
	log       *slog.Logger
	discovery discovery.DiscoveryInterface
	objects   metadata.Interface
	mapper    meta.ResettableRESTMapper
	graph     *graph
	queue     *queue.Queue[types.UID]
	monitors  map[schema.GroupVersionResource]*monitor
	// redefined has an element after a CustomResourceDefinition has changed.
	redefined chan struct{}
	running   sync.WaitGroup
}

// New returns the collector for everything that the server has.
func New(server discovery.DiscoveryInterface, objects metadata.Interface, log *slog.Logger) *Controller {
	c := &Controller{
		log:       log,
		discovery: server,
		objects:   objects,
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(server)),
		graph:     newGraph(),
		monitors:  map[schema.GroupVersionResource]*monitor{},
		redefined: make(chan struct{}, 1),
	}
	c.queue = queue.New(log, c.sync)
	return c
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	defer c.running.Wait()
	c.discover(ctx)
	c.awaitFill(ctx)
	c.running.Go(func() { c.queue.Run(ctx, workers) })
	ticks := time.NewTicker(rediscover)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			c.discover(ctx)
		case <-c.redefined:
			select {
			case <-ctx.Done():
				return
			case <-time.After(definitionDelay):
			}
			c.discover(ctx)
		}
	}
}

// definitionChanged asks for another look at the server's kinds.
func (c *Controller) definitionChanged() {
	select {
	case c.redefined <- struct{}{}:
	default:
	}
}

func (c *Controller) discover(ctx context.Context) {
	if err := c.watchKinds(ctx); err != nil && ctx.Err() == nil {
		c.log.Warn("some kinds could not be discovered; they are missing until the next attempt", "error", err, "retry-in", rediscover)
	}
}

func (c *Controller) awaitFill(ctx context.Context) {
	deadline := time.After(firstFill)
	for _, m := range c.monitors {
		for !m.synced.Load() {
			select {
			case <-ctx.Done():
				return
			case <-deadline:
				c.log.Warn("garbage collection started without a complete list of objects", "resource", m.kind.Resource)
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
}
