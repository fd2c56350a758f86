package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/kube"
)

// serverPause is how long a server that ended by itself is left alone before it
// is started again.
const serverPause = 10 * time.Second

// own is the API server of this process, as often as it is started. Each
// start has credentials of its own, so that requests are given to the latest.
type own struct {
	ready  chan struct{} // closed when one first answers
	once   sync.Once
	latest atomic.Pointer[serverTransport]
	server atomic.Pointer[apiserver.Server]
	run    func(context.Context, Config, chan<- *apiserver.Server) error
	pause  time.Duration
}

// serverTransport reaches one start of the server.
type serverTransport struct {
	url     *url.URL
	through http.RoundTripper
	config  *rest.Config
}

func newOwn() *own {
	return &own{ready: make(chan struct{}), run: Run, pause: serverPause}
}

// keep runs the server until ctx is done. If one that has answered ends by
// itself, for a full disk or a broken store, another one is started. An error of
// the first start ends it.
func (o *own) keep(ctx context.Context, config Config) error {
	for {
		answered, err := o.runOnce(ctx, config)
		if ctx.Err() != nil || !answered && o.latest.Load() == nil {
			return err
		}
		if err == nil {
			err = errors.New("it was asked to")
		}
		fmt.Fprintf(config.Out, "The API server ended: %v. Agent and DNS go on with what they know; it is started again in %s\n", err, o.pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.pause):
		}
	}
}

// runOnce runs the server once, and says whether it answered.
func (o *own) runOnce(ctx context.Context, config Config) (answered bool, err error) {
	started, ended := make(chan *apiserver.Server, 1), make(chan error, 1)
	go func() { ended <- o.run(ctx, config, started) }()
	select {
	case err := <-ended:
		return false, err
	case server := <-started:
		o.server.Store(server)
		if err := o.use(server.LoopbackConfig()); err != nil {
			return false, errors.Join(err, server.Close(), <-ended)
		}
		return true, <-ended
	}
}

// use has requests go to a start of the server.
func (o *own) use(config *rest.Config) error {
	config = kube.Tune(config)
	through, err := rest.TransportFor(config)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	at, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	o.latest.Store(&serverTransport{url: at, through: through, config: config})
	o.once.Do(func() { close(o.ready) })
	return nil
}

// config is a client configuration for whichever start is the latest. It is to
// be asked for once one has answered.
func (o *own) config() *rest.Config {
	config := rest.CopyConfig(o.latest.Load().config)
	config.TLSClientConfig, config.BearerToken = rest.TLSClientConfig{}, ""
	config.Transport = o
	return config
}

// identity is how the agent of this process shows itself to other servers: as a machine
// that has joined would.
func (o *own) identity(node string) agentlink.Identity {
	return func() (*tls.Config, error) {
		server := o.server.Load()
		if server == nil {
			return nil, errors.New("the API server hasn't begun")
		}
		pair, err := server.MachineSigner().Client("system:node:"+node, "system:nodes")
		if err != nil {
			return nil, err
		}
		certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			return nil, fmt.Errorf("show this machine to other servers: %w", err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(server.CA())
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{certificate}}, nil
	}
}

// RoundTrip is part of http.RoundTripper.
func (o *own) RoundTrip(request *http.Request) (*http.Response, error) {
	latest := o.latest.Load()
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host, request.Host = latest.url.Scheme, latest.url.Host, ""
	return latest.through.RoundTrip(request)
}
