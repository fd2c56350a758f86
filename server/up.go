package server

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/latest"
)

// Up serves the API and runs this machine's agent until ctx is done. The agent
// ends first, so that it sees no API that goes away. A server that ends by
// itself is started again; agent and DNS go on meanwhile.
func Up(ctx context.Context, config Config, node agent.Config, gateways Gateways, calm *Start) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := newOwn()
	config.API.AgentSocket = func(name string) string { // the rest are machines that have joined
		if name == node.NodeName {
			return node.Socket
		}
		return ""
	}
	node.Identity = server.identity(node.NodeName)
	ended := make(chan error, 1)
	go func() { ended <- server.keep(serving, config) }()

	calm.begin()
	node.Started = calm.started
	context.AfterFunc(ctx, calm.stopping)
	select {
	case err := <-ended: // it didn't even start
		return err
	case <-server.ready:
	}
	node.API, node.Gone = server.config(), &latest.Value[[]compile.Machine]{}
	group, running := errgroup.WithContext(ctx) // the end of either is the end of both
	if gateways.Serve {
		group.Go(func() error { return gateways.run(running, server, node) })
	}
	group.Go(func() error { return agent.Run(running, node) })
	agentErr := group.Wait()
	stop()
	return errors.Join(agentErr, <-ended)
}
