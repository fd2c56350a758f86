package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/dns/outside"
	"github.com/fairway-net/fairway/kube"
)

// Options are what an operator decides, wherever DNS is served.
type Options struct {
	Zone string
	TTL  time.Duration
	// Outside is a zone for the names of load balancer addresses; "" has none.
	Outside string
	// Corefile is the path of the operator's own; "" generates one.
	Corefile string
	// ResolvConf has the upstream servers, unless Upstreams are given.
	ResolvConf string
	Upstreams  []string
	// Metrics is where CoreDNS' metrics are served, as host:port.
	Metrics string
}

// DefaultOptions are the options of `fairway dns` without flags.
func DefaultOptions() Options {
	return Options{Zone: "cluster.local", TTL: DefaultTTL, ResolvConf: "/etc/resolv.conf", Metrics: "127.0.0.1:9153"}
}

// Validate refuses what can't work, naming the field.
func (o Options) Validate() error {
	if problems := validation.IsDNS1123Subdomain(o.Zone); len(problems) > 0 {
		return fmt.Errorf("cluster domain %q: %s", o.Zone, problems[0])
	}
	if o.TTL < time.Second || o.TTL > time.Hour {
		return fmt.Errorf("DNS TTL %s: must be between 1s and 1h", o.TTL)
	}
	if o.Outside != "" {
		zone, err := outside.Zone(o.Outside)
		if err != nil {
			return fmt.Errorf("outside zone %w", err)
		}
		if dns.IsSubDomain(zone, o.Zone+".") || dns.IsSubDomain(o.Zone+".", zone) {
			return fmt.Errorf("outside zone %q: must not be, contain or be within the cluster domain %s", o.Outside, o.Zone)
		}
	}
	return nil
}

// OutsideZone is Outside with the final dot, or "". The options must be valid.
func (o Options) OutsideZone() string {
	zone, err := outside.Zone(o.Outside)
	if err != nil {
		return ""
	}
	return zone
}

// Server is the configuration of a server of these options that answers from an
// index at some addresses; others are known as its own, by which it is reached.
func (o Options) Server(index *Index, listen []netip.AddrPort, others []netip.Addr, guard Guard, log *slog.Logger) (ServerConfig, error) {
	if err := o.Validate(); err != nil {
		return ServerConfig{}, err
	}
	config := ServerConfig{Index: index, Path: o.Corefile, Log: log}
	if o.Corefile != "" {
		return config, nil
	}
	upstreams := o.Upstreams
	if len(upstreams) == 0 && o.ResolvConf != "" {
		own := slices.Clone(others)
		for _, l := range listen {
			own = append(own, l.Addr())
		}
		var err error
		if upstreams, err = Upstreams(o.ResolvConf, own); err != nil {
			return config, err
		}
	}
	if len(upstreams) == 0 {
		log.Warn("there is no upstream DNS server: names outside the cluster are refused", "resolv-conf", o.ResolvConf)
	}
	config.Corefile = Corefile(CorefileConfig{Listen: listen, Upstreams: upstreams, Guard: guard, Metrics: o.Metrics})
	return config, nil
}

// Config is what `fairway dns` is started with.
type Config struct {
	Options
	API    *rest.Config
	Listen []netip.AddrPort
	Log    *slog.Logger
}

// LoopPeriod is how often to look whether upstreams ask this server.
const LoopPeriod = 30 * time.Second

// Run serves the names of the cluster behind an API until ctx is done.
func Run(ctx context.Context, c Config) error {
	if len(c.Listen) == 0 {
		return errors.New("no address to listen at")
	}
	client, err := kube.Client(c.API)
	if err != nil {
		return err
	}
	index := NewIndex(IndexConfig{Zone: c.Zone, TTL: c.TTL, Outside: c.OutsideZone()})
	config, err := c.Server(index, c.Listen, nil, Guard{}, c.Log)
	if err != nil {
		return err
	}
	server, err := Start(config)
	if err != nil {
		return err
	}
	c.Log.Info("DNS started", "zone", c.Zone, "address", c.Listen)
	group, ctx := errgroup.WithContext(ctx)
	var missing atomic.Int32
	missing.Store(2)
	synced := func() {
		if missing.Add(-1) == 0 {
			index.Synced()
		}
	}
	group.Go(func() error {
		kube.Watch(ctx, kube.Source{Client: client.CoreV1().RESTClient(), Resource: "services"}, kube.Sink[*corev1.Service]{
			Set: index.SetService, Delete: index.DeleteService, Synced: sync.OnceFunc(synced),
		})
		return nil
	})
	group.Go(func() error {
		kube.Watch(ctx, kube.Source{Client: client.DiscoveryV1().RESTClient(), Resource: "endpointslices"}, kube.Sink[*discoveryv1.EndpointSlice]{
			Set: index.SetSlice, Delete: index.DeleteSlice, Synced: sync.OnceFunc(synced),
		})
		return nil
	})
	group.Go(func() error { server.GuardLoops(ctx, reachable(c.Listen[0]), LoopPeriod); return nil })
	err = group.Wait()
	return errors.Join(err, server.Stop())
}

// reachable is an address that a listener answers at from this machine.
func reachable(listen netip.AddrPort) netip.AddrPort {
	switch a := listen.Addr(); {
	case !a.IsUnspecified():
		return listen
	default: // also for ::, which takes IPv4 too
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), listen.Port())
	}
}
