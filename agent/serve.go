package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/internal/httpports"
)

// serve opens the agent's HTTP ports, at the paths that kube-proxy has.
func (a *Agent) serve(ctx context.Context, group *errgroup.Group) error {
	// What the agent before served elsewhere may be in the way.
	if err := a.ports.Keep(httpports.Name("healthz", a.config.HealthzAddress), httpports.Name("metrics", a.config.MetricsAddress)); err != nil {
		return err
	}
	health := http.NewServeMux()
	health.HandleFunc("/healthz", a.health.serveHealthz(a.metrics.Healthz, a.metrics.SLIs))
	health.HandleFunc("/livez", a.health.serveLivez(a.metrics.Livez, a.metrics.SLIs))
	if err := a.listen(ctx, group, "healthz", a.config.HealthzAddress, health); err != nil {
		return err
	}
	pages := http.NewServeMux()
	pages.Handle("/metrics", promhttp.HandlerFor(a.metrics.Gatherer(), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	pages.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, a.Mode()) })
	pages.HandleFunc("/healthz", a.health.serveHealthz(a.metrics.Healthz, a.metrics.SLIs))
	pages.Handle("/metrics/slis", a.metrics.SLIs)
	pages.HandleFunc("/configz", a.serveConfigz)
	pages.HandleFunc("/announce", a.balance.ServeStatus)
	paths := []string{"/metrics", "/metrics/slis", "/proxyMode", "/healthz", "/configz", "/debug/pprof", "/statusz"}
	a.serveZPages(pages, paths)
	pages.HandleFunc("/{$}", a.serveIndex(append(paths, "/announce")))
	pages.Handle("/debug/pprof/", a.profiled(pprof.Index))
	pages.Handle("/debug/pprof/cmdline", a.profiled(pprof.Cmdline))
	pages.Handle("/debug/pprof/profile", a.profiled(pprof.Profile))
	pages.Handle("/debug/pprof/symbol", a.profiled(pprof.Symbol))
	pages.Handle("/debug/pprof/trace", a.profiled(pprof.Trace))
	return a.listen(ctx, group, "metrics", a.config.MetricsAddress, pages)
}

// serveConfigz answers with the configuration in force (kube-proxy's /configz).
func (a *Agent) serveConfigz(w http.ResponseWriter, _ *http.Request) {
	shown := a.configured.Load().Shown
	if shown == nil {
		shown = map[string]any{}
	}
	data, err := json.Marshal(shown)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(data); err != nil {
		return // the client went away
	}
}

// profiled is there while profiling is configured.
func (a *Agent) profiled(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.configured.Load().Profiling {
			http.NotFound(w, r)
			return
		}
		handler(w, r)
	})
}

// bindAgain is how long kube-proxy waits too before it tries again to open an
// address.
const bindAgain = 5 * time.Second

// listen serves at an address. One that can't be opened (in use, not there yet)
// is an error at once, or tried again, as configured.
func (a *Agent) listen(ctx context.Context, group *errgroup.Group, what, address string, handler http.Handler) error {
	if address == "" {
		return nil
	}
	opened, err := a.ports.Serve(ctx, what, address, handler)
	if err == nil {
		group.Go(func() error { return opened.Watch(ctx, what) })
		return nil
	}
	if !a.config.RetryBind {
		return fmt.Errorf("open %s address: %w", what, err)
	}
	a.config.Log.Error("address not open; trying again", "listener", what, "error", err)
	a.events.ReportNode("FailedToStart"+what, err.Error())
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(bindAgain):
			}
			if opened, err := a.ports.Serve(ctx, what, address, handler); err == nil {
				// Most likely it was kube-proxy's, or another agent's, which
				// programmed this node until now.
				a.planes.othersGone()
				return opened.Watch(ctx, what)
			}
		}
	})
	return nil
}
