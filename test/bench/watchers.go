package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// WatchersOptions say how to simulate many nodes at one API server.
type WatchersOptions struct {
	Options
	Watchers []int // how many nodes at a time, growing
	Writes   int   // changes while they watch
}

// Watchers simulates nodes: each a connection of its own with the two watches of
// an agent, Services and EndpointSlices, whose events are read and counted. It
// tells what they cost the server.
func Watchers(ctx context.Context, o WatchersOptions) (err error) {
	r := &run{options: o.Options, results: &results{}}
	if r.site, err = newSite(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if r.api, err = startAPI(ctx, r.site, o.Fairway, filepath.Join(o.Dir, "server")); err != nil {
		return err
	}
	r.api.progress = o.Progress
	s := stage{size: size{o.Services, o.Endpoints}}
	if err := r.fill(ctx, s); err != nil {
		return err
	}
	c := &crowd{run: r}
	defer func() { err = errors.Join(err, c.leave()) }()
	if err := c.lists(ctx); err != nil {
		return err
	}
	for _, n := range o.Watchers {
		if err := c.grow(ctx, n); err != nil {
			return err
		}
		if err := c.measure(ctx, o.Writes); err != nil {
			return err
		}
	}
	return nil
}

// crowd are nodes that watch.
type crowd struct {
	*run
	nodes  []*watcher
	bytes  atomic.Int64
	events atomic.Int64
	open   sync.WaitGroup
}

// watcher is one node's connection.
type watcher struct {
	transport *http.Transport
	bodies    []io.Closer
}

// The two lists and watches of an agent.
var watched = []string{"/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"}

func (c *crowd) say(format string, args ...any) {
	fmt.Fprintf(c.options.Stdout, format+"\n", args...)
}

// lists measures what a node costs that starts: both lists in full.
func (c *crowd) lists(ctx context.Context) error {
	const times = 5
	before, err := c.api.process.usage.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	var plain int64
	for range times {
		w, err := c.connect()
		if err != nil {
			return err
		}
		for _, path := range watched {
			body, err := w.get(ctx, c.api.config.Host+path, "application/vnd.kubernetes.protobuf")
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, body)
			if err = errors.Join(err, body.Close()); err != nil {
				return fmt.Errorf("read list: %w", err)
			}
			plain += n
		}
		w.transport.CloseIdleConnections()
	}
	took := time.Since(began)
	after, err := c.api.process.usage.cpu()
	if err != nil {
		return err
	}
	c.say("a node that starts lists %.1f MB: %s of the server's CPU, %s in all",
		float64(plain)/times/1e6, milliseconds((after-before)/times), milliseconds(took/times))
	return nil
}

// connect makes a node's connection.
func (c *crowd) connect() (*watcher, error) {
	tls, err := rest.TLSConfigFor(c.api.config)
	if err != nil {
		return nil, fmt.Errorf("read client certificates: %w", err)
	}
	// HTTP/2 alone, one connection, nothing shared with the other nodes.
	t := &http.Transport{DialContext: c.site.dial, TLSClientConfig: tls, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP2(true)
	return &watcher{transport: t, bodies: []io.Closer{closer(t.CloseIdleConnections)}}, nil
}

type closer func()

func (f closer) Close() error { f(); return nil }

func (w *watcher) get(ctx context.Context, url, accept string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	request.Header.Set("Accept", accept)
	answer, err := w.transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, 300))
		return nil, errors.Join(fmt.Errorf("ask %s: %s: %s", url, answer.Status, text), err, answer.Body.Close())
	}
	return answer.Body, nil
}

// grow adds nodes until there are n.
func (c *crowd) grow(ctx context.Context, n int) error {
	before, err := c.api.process.usage.memory()
	if err != nil {
		return err
	}
	list, err := c.api.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("find the resource version: %w", err)
	}
	had := len(c.nodes)
	added := make([]*watcher, n-had)
	began := time.Now()
	err = each(n-had, writers, func(i int) error {
		w, err := c.connect()
		if err != nil {
			return err
		}
		added[i] = w
		for _, path := range watched {
			url := c.api.config.Host + path + "?watch=1&timeoutSeconds=3600&resourceVersion=" + list.ResourceVersion
			body, err := w.get(ctx, url, "application/vnd.kubernetes.protobuf;stream=watch")
			if err != nil {
				return err
			}
			w.bodies = append(w.bodies, body)
			c.open.Go(func() { c.read(body) })
		}
		return nil
	})
	for _, w := range added {
		if w != nil {
			c.nodes = append(c.nodes, w)
		}
	}
	if err != nil {
		return err
	}
	took := time.Since(began)
	pause(ctx, time.Second)
	after, err := c.api.process.usage.memory()
	if err != nil {
		return err
	}
	c.say("%d nodes more connect in %.1f s; the server's memory goes from %d MB to %d MB: %d kB for each",
		n-had, took.Seconds(), before.rss>>20, after.rss>>20, (after.rss-before.rss)/int64(n-had)>>10)
	return nil
}

// read counts what arrives on a watch: length-delimited frames.
func (c *crowd) read(body io.Reader) {
	var head [4]byte
	for {
		if _, err := io.ReadFull(body, head[:]); err != nil {
			return
		}
		size := int64(head[0])<<24 | int64(head[1])<<16 | int64(head[2])<<8 | int64(head[3])
		if _, err := io.CopyN(io.Discard, body, size); err != nil {
			return
		}
		c.bytes.Add(size + 4)
		c.events.Add(1)
	}
}

// measure changes an endpoint at a time and waits until every node knows.
func (c *crowd) measure(ctx context.Context, writes int) error {
	before, err := c.api.process.usage.cpu()
	if err != nil {
		return err
	}
	had, bytes := c.events.Load(), c.bytes.Load()
	all := make([]latency, writes)
	for i := range all {
		svc := c.api.world.services[i%len(c.api.world.services)]
		addrs := append([]netip.Addr{c.api.world.address()}, svc.addrs[1:]...)
		if err := c.api.setEndpoints(ctx, svc, addrs); err != nil {
			return err
		}
		written := time.Now()
		all[i].written, err = c.everybody(ctx, had+int64((i+1)*len(c.nodes)), written)
		if err != nil {
			return err
		}
	}
	after, err := c.api.process.usage.cpu()
	if err != nil {
		return err
	}
	told := float64(c.events.Load() - had)
	c.say("%d nodes, %d changes of one endpoint of %d: the last node knows after %s (p50 / p99); the server's CPU for each change %s, %.1f µs for each node; %.0f bytes to each",
		len(c.nodes), writes, c.options.Endpoints, percentiles(all, func(l latency) time.Duration { return l.written }),
		milliseconds((after-before)/time.Duration(writes)), float64((after-before).Microseconds())/told, float64(c.bytes.Load()-bytes)/told)
	return nil
}

// everybody waits until so many events have arrived in all.
func (c *crowd) everybody(ctx context.Context, events int64, since time.Time) (time.Duration, error) {
	for c.events.Load() < events {
		if ctx.Err() != nil || time.Since(since) > reachTimeout {
			return 0, fmt.Errorf("%d of %d events have arrived after %s", c.events.Load(), events, time.Since(since))
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(since), nil
}

func (c *crowd) leave() error {
	var errs []error
	for _, n := range c.nodes {
		for i := len(n.bodies) - 1; i >= 0; i-- {
			errs = append(errs, n.bodies[i].Close())
		}
	}
	c.open.Wait()
	return errors.Join(errs...)
}
