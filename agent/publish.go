package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/kube/notices"
)

// Publish is what an agent does for the processes of its machine.
type Publish struct {
	Folder string // of the files that say what runs; "" publishes nothing
	// Drain takes what is published out of service before the agent ends.
	Drain bool
	// DrainTime is how long an endpoint that goes still answers.
	DrainTime time.Duration
}

// newPublisher makes what publishes this machine's endpoints.
func (a *Agent) newPublisher() *publish.Publisher {
	return publish.New(publish.Config{
		Client: a.client, Node: a.config.NodeName, Folder: a.config.Publish.Folder,
		DrainTime: a.config.Publish.DrainTime, Log: a.config.Log,
		Tell: func(service types.NamespacedName, kind, reason, message string) {
			a.events.Post(notices.Notice{Service: service, Kind: kind, Reason: reason, Message: message})
		},
	})
}

// drainFirst returns a context that ends when ctx does and, where asked to, what
// this machine publishes has been drained: the agent goes on for as long, so that
// its own kernel follows too.
func (a *Agent) drainFirst(ctx context.Context) (context.Context, context.CancelFunc) {
	if !a.config.Publish.Drain {
		return context.WithCancel(ctx)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		defer cancel()
		const writing = 5 * time.Second // beyond the time to drain
		limited, done := context.WithTimeout(running, a.config.Publish.DrainTime+writing)
		defer done()
		if err := a.publish.Drain(limited); err != nil {
			a.config.Log.Warn("endpoints of this machine were not drained", "error", err)
		}
	})
	return running, func() { stop(); cancel() }
}
