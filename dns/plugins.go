package dns

import (
	"fmt"
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
var serving struct {
	sync.Mutex
	registered bool
	index      *Index
	loop       *loopGuard
	corefile   func() (caddy.Input, error)
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
		return serving.corefile()
	}))
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
	index, loop := serving.index, serving.loop
	serving.Unlock()
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		return &handler{next: next, index: index, loop: loop}
	})
	return nil
}
