package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// serve opens the agent's HTTP ports. An address in use is an error at once,
// not a log line later.
func (a *Agent) serve(ctx context.Context, group *errgroup.Group) error {
	health := http.NewServeMux()
	health.HandleFunc("/healthz", a.health.serveHealthz)
	health.HandleFunc("/livez", a.health.serveLivez)
	if err := listen(ctx, group, "healthz", a.config.HealthzAddress, health); err != nil {
		return err
	}
	metrics := http.NewServeMux()
	metrics.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	metrics.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, a.Mode()) })
	metrics.HandleFunc("/healthz", a.health.serveHealthz)
	return listen(ctx, group, "metrics", a.config.MetricsAddress, metrics)
}

func listen(ctx context.Context, group *errgroup.Group, what, address string, handler http.Handler) error {
	if address == "" {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("open %s address: %w", what, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", what, err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return nil
}
