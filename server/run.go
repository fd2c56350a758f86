// Package server is the life of an API server and of what runs beside it on its machine: the
// controllers, and with `fairway up` the node's agent and the processes of Gateways.
//
//	run.go       the API and the controllers, until they are asked to end
//	stop.go      how they end in time
//	own.go       the server of `up`, started again if it ends by itself
//	up.go        everything on one machine
//	gateways.go  the processes of Gateways
//	account.go   who they are, and issuer.go who says so
//	start.go     what is said of a start
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/controller"
	"github.com/fairway-net/fairway/controller/addresses"
	controllers "github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/internal/servicerange"
	"github.com/fairway-net/fairway/internal/tuning"
)

// roomForGarbage bounds how much garbage gathers in a server.
const roomForGarbage = 1 << 30

// leastGarbage is how much of it gathers at least, in hundredths of what is in use: as Go has it.
const leastGarbage = 100

// Config is what one machine serves.
type Config struct {
	API       apiserver.Config
	Addresses addresses.Options // of Services of type LoadBalancer
	Gateways  controllers.Options
	// Join says how other machines join, in the line that says that the server is ready;
	// nil says nothing.
	Join func(context.Context, *apiserver.Server) (string, error)
	Out  io.Writer // for people
}

// Run serves until the context ends. Once the API answers, the server is passed to ready, if
// that is not nil; it must have room for it.
func Run(ctx context.Context, config Config, ready chan<- *apiserver.Server) error {
	if _, err := tuning.TuneGC(roomForGarbage, leastGarbage); err != nil {
		return err
	}
	for _, cidr := range config.API.ServiceCIDRs {
		if err := servicerange.Check("--service-cidr", cidr); err != nil {
			return err
		}
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	started := context.AfterFunc(ctx, stop)
	server, err := apiserver.Start(serving, config.API)
	switch {
	case err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil // it was asked to end, and has
	case err != nil:
		return err
	}
	started() // from now on the controllers end first
	reach := ""
	if !server.OpenToOthers() {
		reach = " for programs of this machine (for others: --bind-address)"
	}
	join := ""
	if config.Join != nil {
		if join, err = config.Join(ctx, server); err != nil {
			return errors.Join(err, server.Close())
		}
	}
	if _, err := fmt.Fprintf(config.Out, "API server ready at %s%s; kubeconfig: %s%s\n", server.URL(), reach, server.AdminKubeconfig(), join); err != nil {
		return errors.Join(err, server.Close())
	}
	if name := server.ClusterName(); name != "" {
		fmt.Fprintf(config.Out, "This is server %s of a cluster. See: fairway server members. For more servers: fairway token create --server\n", name)
	}
	if ready != nil {
		ready <- server
	}
	options, err := controllerOptions(server)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	options.Addresses, options.Gateway = config.Addresses, config.Gateways
	options.Signer, options.RootCA, options.NodeGrace = server.MachineSigner(), server.CA(), config.API.NodeGrace
	options.SecretToken, options.MayServeGateways = server, config.API.ServesGateways
	options.CountQuota = server.CountQuota
	asked := ctx
	group, ctx := errgroup.WithContext(ctx)
	ended := make(chan struct{})
	group.Go(func() error {
		defer close(ended)
		if err := controller.Run(ctx, server.LoopbackConfig(), options); err != nil {
			return errors.Join(fmt.Errorf("run controllers: %w", err), server.Close())
		}
		return nil
	})
	group.Go(func() error {
		stopAfter(ctx, ended, stop)
		return nil
	})
	group.Go(server.Wait)
	group.Go(func() error { return forgetStart(ctx) })
	return endInTime(asked, config.Out, group.Wait)
}

// settled is when a server's start is over: its own objects are there, and
// controllers and schemas have taken them in.
const settled = 10 * time.Second

// forgetStart returns to the system what only the start needed. It may fail
// without harm: the memory then stays.
func forgetStart(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(settled):
		if err := tuning.ForgetStart(); err != nil {
			slog.Warn("memory used by the start was not released", "error", err)
		}
	}
	return nil
}

// controllerOptions lets one server's controllers work at a time where there may
// be several servers.
func controllerOptions(server *apiserver.Server) (controller.Options, error) {
	if !server.InCluster() {
		return controller.Options{}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return controller.Options{}, fmt.Errorf("name this server for the controllers' lease: %w", err)
	}
	return controller.Options{Lease: &controller.Lease{
		Namespace: metav1.NamespaceSystem,
		Name:      "fairway-controllers",
		Identity:  host + "_" + string(uuid.NewUUID()),
	}}, nil
}
