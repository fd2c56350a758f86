package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/customresources"
	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// Server is a running API server.
type Server struct {
	config      Config
	authorities *pki.Authorities
	// loaded are the keys of each authority that are used.
	loaded      map[string][]string
	outdated    *outdated
	rotating    sync.Mutex // of files of authorities
	access      *access
	longRunning []*longRunning
	fairness    *fairness
	spent       *spending
	countable   *countable
	events      record.EventBroadcaster
	custom      *customresources.Server // nil without custom resources
	url         string
	loopback    *rest.Config
	generic     *genericapiserver.GenericAPIServer
	options     *storage.RESTOptions
	allocator   *allocator.Allocator
	rangesKnown cache.InformerSynced
	// secretsReadable is a check of /readyz.
	secretsReadable healthz.HealthChecker
	backend         *storage.Backend
	presence        atomic.Pointer[presence]
	lock            *os.File
	listener        net.Listener
	renewing        sync.WaitGroup

	stop    context.CancelFunc
	running bool
	stopped chan struct{}
	err     error
}

// Start starts a server and returns when it is ready: its API answers, and
// the objects that every cluster has are there. It ends with ctx; if that is
// while it starts, the error wraps ctx's.
func Start(ctx context.Context, config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: config, outdated: &outdated{}, stopped: make(chan struct{})}
	running, stop := context.WithCancel(ctx)
	s.stop = stop
	if err := s.start(running); err != nil {
		if ctx.Err() != nil { // what failed, failed because of it
			err = fmt.Errorf("API server: ended while it started: %w", ctx.Err())
		}
		s.stop()
		if s.running {
			return nil, errors.Join(err, s.Wait())
		}
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	var err error
	if s.lock, err = openDataDir(s.config.DataDir); err != nil {
		return err
	}
	if err := storage.CheckRoom(filepath.Join(s.config.DataDir, "etcd")); err != nil {
		return err
	}
	address := net.JoinHostPort(s.config.BindAddress.String(), strconv.Itoa(s.config.Port))
	if s.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("serve API: %w", err)
	}
	s.config.Port = s.listener.Addr().(*net.TCPAddr).Port
	if s.config.AdvertiseAddress, err = s.config.advertised(); err != nil {
		return err
	}
	if err := s.config.joinOrInit(ctx); err != nil {
		return err
	}
	s.url = "https://" + net.JoinHostPort(s.config.reachable().String(), strconv.Itoa(s.config.Port))
	if err := s.config.checkKeys(); err != nil {
		return err
	}
	if s.authorities, err = pki.OpenAll(filepath.Join(s.config.DataDir, "pki")); err != nil {
		return err
	}
	if _, err := pki.TokenKeys(s.pkiDir()); err != nil {
		return err
	}
	if s.loaded, err = loadedKeys(s.pkiDir()); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	prepared := s.generic.PrepareRun()
	run := make(chan error, 1)
	go func() { run <- prepared.RunWithContext(ctx) }()
	s.running = true
	go s.supervise(ctx, run)
	if s.savesSnapshots() && s.config.SnapshotInterval > 0 {
		go s.takeSnapshots(ctx)
	}
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	if err := s.bootstrap(ctx); err != nil {
		return err
	}
	if err := s.writeAdminKubeconfig(); err != nil {
		return err
	}
	s.renewing.Go(func() { s.renewCertificates(ctx) })
	s.renewing.Go(func() { s.followRotations(ctx) })
	s.renewing.Go(func() { s.fairness.run(ctx) })
	for _, l := range s.longRunning {
		s.renewing.Go(func() { l.run(ctx, recheckPeriod, (&identity.Revocable{Objects: s.access.objects}).Version) })
	}
	return nil
}

// openStore starts the embedded etcd, alone or as one of several, or reaches an
// existing one.
func (s *Server) openStore(ctx context.Context) error {
	member, err := s.member()
	if err != nil {
		return err
	}
	s.backend, err = storage.Open(ctx, storage.Options{
		Dir:     s.config.etcdDir(),
		Servers: s.config.EtcdServers,
		Prefix:  s.config.EtcdPrefix,
		CAFile:  s.config.EtcdCAFile, CertFile: s.config.EtcdCertFile, KeyFile: s.config.EtcdKeyFile,
		Member: member,
	})
	if m := s.config.membership; err == nil && m != nil && !m.Stored {
		m.Stored = true
		err = m.write(s.config.DataDir)
	}
	return err
}

// InCluster says whether several servers may share the objects of this one.
func (s *Server) InCluster() bool {
	return s.config.membership != nil || len(s.config.EtcdServers) > 0
}

// ClusterName is this server's name among those of its cluster; "" if it is alone.
func (s *Server) ClusterName() string {
	if s.config.membership == nil {
		return ""
	}
	return s.config.membership.Name
}

// savesSnapshots says whether the store is this server's own.
func (s *Server) savesSnapshots() bool { return len(s.config.EtcdServers) == 0 }

// drainTimeout bounds how long requests may take that are under way when the
// server ends. Watches are ended at once.
const drainTimeout = time.Second

// closeTimeout bounds how long connections may take to close: HTTP/2 gives
// clients a second to say that they know.
const closeTimeout = 1200 * time.Millisecond

// supervise waits for the server to end and then cleans up.
func (s *Server) supervise(ctx context.Context, run <-chan error) {
	var err error
	select {
	case err = <-run:
	case <-ctx.Done():
		go s.handOver()
		select {
		case err = <-run:
		case <-time.After(closeTimeout):
			// Requests that wait for etcd fail now.
			err = s.backend.Close()
			err = errors.Join(err, <-run)
		}
	case failure, ok := <-s.backend.Failed:
		if ok {
			err = fmt.Errorf("embedded etcd stopped: %w", failure)
		}
		s.stop()
		err = errors.Join(err, <-run)
	}
	s.stop()
	s.err = errors.Join(err, s.release())
	close(s.stopped)
}

// handOver has another server's etcd lead as soon as this one's has nothing more to
// write, while connections of clients are still closing.
func (s *Server) handOver() {
	if p := s.presence.Load(); p != nil {
		<-p.closed
	}
	s.generic.NonLongRunningRequestWaitGroup.Wait()
	s.backend.HandOver()
}

// release gives back what start took, in the opposite order.
func (s *Server) release() error {
	var errs []error
	if p := s.presence.Load(); p != nil {
		<-p.closed
	}
	s.renewing.Wait()
	if s.events != nil {
		s.events.Shutdown()
	}
	if s.allocator != nil {
		s.allocator.Wait()
	}
	if s.options != nil {
		s.options.Stop()
	}
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
	}
	if s.listener != nil {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.stopped }

// Wait returns when the server has ended, with the error that ended it; nil
// if it was asked to.
func (s *Server) Wait() error {
	<-s.stopped
	return s.err
}

// Close ends the server and waits for it.
func (s *Server) Close() error {
	s.stop()
	return s.Wait()
}
