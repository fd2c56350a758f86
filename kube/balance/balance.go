package balance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/kube"
)

// Balancer is a client's choice among several servers.
type Balancer struct {
	file   string
	log    *slog.Logger
	probe  *http.Client
	period time.Duration
	once   sync.Once
	// doubt asks for a look at the server in use.
	doubt chan struct{}

	mu      sync.Mutex
	servers []*url.URL
	current *use
	bases   []http.RoundTripper
	asked   time.Time // when others were asked last for a request that was refused
}

// use is the time for which one server is in use.
type use struct {
	server *url.URL
	ctx    context.Context
	end    context.CancelCauseFunc
}

func begin(server *url.URL) *use {
	ctx, end := context.WithCancelCause(context.Background())
	return &use{server, ctx, end}
}

// Attach has the requests of clients made from config go to whichever server
// answers: that of config, or one that the file names. It must come before
// clients are made. Run keeps looking; without it, a server is looked at once,
// and then again when it doesn't take connections.
func Attach(config *rest.Config, file string, log *slog.Logger) (*Balancer, error) {
	own, err := url.Parse(strings.TrimSuffix(config.Host, "/"))
	if err != nil || own.Host == "" {
		return nil, fmt.Errorf("balance API servers: %q is no URL of a server", config.Host)
	}
	b := &Balancer{file: file, log: log, period: checkPeriod, doubt: make(chan struct{}, 1), servers: []*url.URL{own}, current: begin(own)}
	if b.probe, err = newProbe(config); err != nil {
		return nil, err
	}
	list, err := read(file)
	if err != nil {
		log.Warn("using the API server of the kubeconfig", "error", err)
	}
	b.learn(urls(list))
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		b.mu.Lock()
		b.bases = append(b.bases, base)
		b.mu.Unlock()
		return &transport{b, base, own.Host}
	})
	return b, nil
}

// Config reads a kubeconfig as kube.Config does, for a command that runs
// briefly. Where a server or an agent keeps the file of servers beside it, any of
// those will do.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := kube.Config(kubeconfig)
	if err != nil || kubeconfig == "" {
		return config, err
	}
	return config, AttachFor(config, kubeconfig)
}

// AttachFor does that for a configuration that was read from a kubeconfig.
func AttachFor(config *rest.Config, kubeconfig string) error {
	file, list := beside(config, kubeconfig)
	if len(list) < 2 {
		return nil // the file says nothing new
	}
	_, err := Attach(config, file, slog.New(slog.DiscardHandler))
	return err
}

// AttachLasting does that for a program that runs on, which must call Run. The
// result is nil where no file of servers is beside the kubeconfig.
func AttachLasting(config *rest.Config, kubeconfig string, log *slog.Logger) (*Balancer, error) {
	file, list := beside(config, kubeconfig)
	if len(list) == 0 {
		return nil, nil
	}
	return Attach(config, file, log)
}

// Begin is AttachLasting and Run, until the result is called.
func Begin(ctx context.Context, config *rest.Config, kubeconfig string, log *slog.Logger) (end func(), err error) {
	servers, err := AttachLasting(config, kubeconfig, log)
	if servers == nil || err != nil {
		return func() {}, err
	}
	client, err := kube.Client(config)
	if err != nil {
		return nil, err
	}
	looking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		servers.Run(looking, client)
	}()
	return func() { stop(); <-done }, nil
}

// beside is the file of servers beside a kubeconfig, and which those are; none if
// the file is of another kubeconfig.
func beside(config *rest.Config, kubeconfig string) (string, []known) {
	file := filepath.Join(filepath.Dir(kubeconfig), FileName)
	list, err := read(file)
	if err != nil || !slices.ContainsFunc(list, func(k known) bool { return k.URL == strings.TrimSuffix(config.Host, "/") }) {
		return file, nil
	}
	return file, list
}

func urls(list []known) []string {
	var out []string
	for _, k := range list {
		out = append(out, k.URL)
	}
	return out
}

// learn adds servers to those that are known.
func (b *Balancer) learn(servers []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil || slices.ContainsFunc(b.servers, func(k *url.URL) bool { return k.Host == u.Host }) || len(b.servers) >= mostServers {
			continue
		}
		b.servers = append(b.servers, u)
	}
}

// Server is the URL of the server in use.
func (b *Balancer) Server() string { return b.using().server.String() }

func (b *Balancer) using() *use {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current
}

// others are all servers but one.
func (b *Balancer) others(than *url.URL) []*url.URL {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.servers), func(u *url.URL) bool { return u.Host == than.Host })
}

// mayAskOthers keeps a client that no server accepts from asking all of them all
// the time.
func (b *Balancer) mayAskOthers(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.asked) < b.period {
		return false
	}
	b.asked = now
	return true
}

// errMoved ends what is under way at a server that another one has replaced.
var errMoved = errors.New("the API server stopped answering; another one is in use now")

// move uses another server from now on, unless that has happened already.
func (b *Balancer) move(from *use, to *url.URL) {
	b.mu.Lock()
	moved := b.current == from
	if moved {
		b.current = begin(to)
	}
	bases := slices.Clone(b.bases)
	b.mu.Unlock()
	if !moved {
		return
	}
	b.log.Info("using another API server", "before", from.server.Host, "now", to.Host)
	from.end(errMoved)
	for _, base := range bases {
		utilnet.CloseIdleConnectionsFor(base)
	}
}
