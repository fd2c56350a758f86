package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// checkPeriod is how often the server in use is looked at, and checkTimeout
	// how long it may take to answer. Two looks in a row must fail, unless it
	// doesn't take connections at all.
	checkPeriod  = 2 * time.Second
	checkTimeout = 2 * time.Second
	checkMisses  = 2
	// learnPeriod is how often the list of servers is read.
	learnPeriod = 15 * time.Second
)

// health is how a server is; more is better.
type health int

const (
	refuses health = iota // takes no connections
	silent
	unready
	ready
)

// newProbe makes a client that looks at servers: without credentials, and with
// connections of its own.
func newProbe(config *rest.Config) (*http.Client, error) {
	tls := rest.TLSClientConfig{CAFile: config.CAFile, CAData: config.CAData, ServerName: config.ServerName, Insecure: config.Insecure}
	t, err := rest.TLSConfigFor(&rest.Config{Host: config.Host, TLSClientConfig: tls})
	if err != nil {
		return nil, fmt.Errorf("balance API servers: %w", err)
	}
	return &http.Client{Timeout: checkTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, ForceAttemptHTTP2: true}}, nil
}

// look asks a server whether it is ready.
func (b *Balancer) look(ctx context.Context, server *url.URL) health {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.JoinPath("readyz").String(), nil)
	if err != nil {
		return silent
	}
	resp, err := b.probe.Do(req)
	if err != nil {
		// The next look takes a connection of its own.
		b.probe.CloseIdleConnections()
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && !op.Timeout() {
			return refuses
		}
		return silent
	}
	_, err = io.Copy(io.Discard, resp.Body)
	switch err = errors.Join(err, resp.Body.Close()); {
	case err != nil:
		return silent
	case resp.StatusCode == http.StatusOK:
		return ready
	}
	return unready
}

// headStart is how long the server in use has to answer before the others are asked, too, whose
// answer counts if it is better: a client that asks once doesn't wait for one without power.
const headStart = 200 * time.Millisecond

// looked is what came of a look at a server.
type looked struct {
	server *url.URL
	health health
}

// settle looks for a server that answers, before the first request.
func (b *Balancer) settle(ctx context.Context) {
	current := b.using()
	others := b.others(current.server)
	if len(others) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan looked, 1+len(others))
	look := func(servers ...*url.URL) (n int) {
		for _, s := range servers {
			go func() { results <- looked{s, b.look(ctx, s)} }()
		}
		return len(servers)
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	alone := time.NewTimer(headStart)
	defer alone.Stop()
	best := looked{current.server, silent}
	for due := look(current.server); due > 0 && best.health != ready; {
		select {
		case <-alone.C:
			due += look(others...)
			others = nil
		case r := <-results:
			due--
			if r.health > best.health {
				best = r
			}
			if r.server == current.server && r.health != ready {
				due += look(others...)
				others = nil
			}
		}
	}
	if best.server != current.server && best.health >= unready {
		b.move(current, best.server)
	}
}

// seek moves to the best of the other servers, if it is better than the one in
// use, of which the health is given.
func (b *Balancer) seek(ctx context.Context, current *use, its health) {
	others := b.others(current.server)
	// Many clients that lose a server don't all move to the same one.
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	found := make([]health, len(others))
	var looks sync.WaitGroup
	for i, other := range others {
		looks.Go(func() { found[i] = b.look(ctx, other) })
	}
	looks.Wait()
	if len(found) == 0 {
		return
	}
	if best := slices.Max(found); best > its && best >= unready {
		b.move(current, others[slices.Index(found, best)])
	}
}

// suspect asks for a look now.
func (b *Balancer) suspect() {
	select {
	case b.doubt <- struct{}{}:
	default:
	}
}

// Run keeps looking at the server in use, and learns which servers there are,
// until ctx is done. Its client is one with this balancer attached.
func (b *Balancer) Run(ctx context.Context, client kubernetes.Interface) {
	var learning sync.WaitGroup
	defer learning.Wait()
	learning.Go(func() { b.follow(ctx, client) })
	misses := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.doubt:
		case <-time.After(b.period/2 + rand.N(b.period)):
		}
		current := b.using()
		if len(b.others(current.server)) == 0 {
			continue // nothing to choose from
		}
		h := b.look(ctx, current.server)
		if h == ready {
			misses = 0
			continue
		}
		if misses++; (h == refuses || misses >= checkMisses) && ctx.Err() == nil {
			b.seek(ctx, current, h)
		}
		if b.using() != current {
			misses = 0
		} else if h != refuses {
			b.again(ctx)
		}
	}
}

// again asks for the second look soon.
func (b *Balancer) again(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(b.period / 4):
		b.suspect()
	}
}

// follow learns which servers there are.
func (b *Balancer) follow(ctx context.Context, client kubernetes.Interface) {
	for {
		if err := b.list(ctx, client); err != nil && ctx.Err() == nil {
			b.log.Debug("the list of API servers could not be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(learnPeriod/2 + rand.N(learnPeriod)):
		}
	}
}

func (b *Balancer) list(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, learnPeriod)
	defer cancel()
	// Servers write these themselves. Whoever else writes one gains nothing:
	// servers must show a certificate of the authority that the client trusts.
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=kubernetes," + discoveryv1.LabelManagedBy + "=fairway-apiserver",
	})
	if err != nil {
		return err
	}
	var listed []string
	for _, slice := range slices.Items {
		for _, port := range slice.Ports {
			for _, e := range slice.Endpoints {
				if port.Port != nil && len(e.Addresses) > 0 {
					listed = append(listed, "https://"+net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	if len(listed) == 0 {
		return nil
	}
	b.learn(listed)
	return Remember(b.file, listed, time.Now())
}
