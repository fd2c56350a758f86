package dns

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	// Each makes its directive known to CoreDNS; directives has their order.
	// core/plugin, which has them all, would bring in three clouds' SDKs.
	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/any"
	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/debug"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/multisocket"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/timeouts"
	_ "github.com/coredns/coredns/plugin/whoami"
)

// directives are the plugins in the order in which a question passes them.
// Ours comes before the cache, so that nothing of the cluster is ever cached.
func directives() []string {
	return []string{
		"timeouts", "multisocket", "reload", "bufsize", "bind", "debug", "ready", "health",
		"prometheus", "errors", "log", "acl", "any", "loadbalance", "autopath", "minimal",
		pluginName, "cache", "rewrite", "template", "hosts", "loop", "forward", "whoami",
	}
}

// serving is the index of the server that runs in this process. CoreDNS is set
// up by state of the process, so there is at most one.
var serving servingState

type servingState struct {
	sync.Mutex
	registered bool
	index      *Index
	loop       *loopGuard
	corefile   func() (caddy.Input, error)
	separate   bool // the blocks of the Corefile being read, which may be listened for by us
	fresh      []*listeners
	log        *slog.Logger
}

// input is the Corefile as it is now, for an instance that is about to start.
// The caller holds the lock.
func (s *servingState) input() (caddy.Input, error) {
	input, err := s.corefile()
	if err != nil {
		return nil, err
	}
	s.fresh = nil
	if s.separate, err = separate(input); err != nil {
		return nil, err
	}
	return input, nil
}

// register makes our plugin and the order known to CoreDNS, once.
func register() error {
	if serving.registered {
		return nil
	}
	if err := dnsserver.Register(); err != nil {
		return fmt.Errorf("register DNS server: %w", err)
	}
	dnsserver.Directives = directives()
	dnsserver.Quiet, caddy.Quiet = true, true
	plugin.Register(pluginName, setup)
	caddy.SetDefaultCaddyfileLoader(pluginName, caddy.LoaderFunc(func(string) (caddy.Input, error) {
		serving.Lock()
		defer serving.Unlock()
		if serving.corefile == nil {
			return nil, nil
		}
		return serving.input()
	}))
	order := directives()
	caddy.RegisterParsingCallback("dns", order[len(order)-1], func(caddy.Context) error {
		serving.Lock()
		defer serving.Unlock()
		for _, l := range serving.fresh {
			if err := l.compile(); err != nil {
				return err
			}
		}
		return nil
	})
	serving.registered = true
	return nil
}

// setup reads the directive, which takes no arguments: the zone is the
// --cluster-domain that the rest of the program knows too.
func setup(c *caddy.Controller) error {
	for c.Next() {
		if args := c.RemainingArgs(); len(args) > 0 {
			return plugin.Error(pluginName, c.ArgErr())
		}
		if c.NextBlock() {
			return plugin.Error(pluginName, c.Errf("unknown property %q", c.Val()))
		}
	}
	serving.Lock()
	defer serving.Unlock()
	index, loop, config := serving.index, serving.loop, dnsserver.GetConfig(c)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		return &handler{next: next, index: index, loop: loop}
	})
	if serving.separate {
		l := takeOver(config, index, serving.log)
		serving.fresh = append(serving.fresh, l)
		c.OnStartup(l.start)
		c.OnShutdown(l.stop)
		c.OnRestartFailed(stopFresh) // of the instance that would have come after this one
	}
	return nil
}

// stopFresh ends what an instance that couldn't start has started.
func stopFresh() error {
	serving.Lock()
	defer serving.Unlock()
	var errs []error
	for _, l := range serving.fresh {
		errs = append(errs, l.stop())
	}
	serving.fresh = nil
	return errors.Join(errs...)
}
