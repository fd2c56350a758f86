package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/apiserver/storage"
)

// Server is a running API server.
type Server struct {
	config    Config
	authority *pki.Authority
	url       string
	loopback  *rest.Config
	generic   *genericapiserver.GenericAPIServer
	options   *storage.RESTOptions
	allocator *allocator.Allocator
	backend   *storage.Backend
	presence  *presence
	lock      *os.File
	listener  net.Listener

	stop    context.CancelFunc
	running bool
	stopped chan struct{}
	err     error
}

// Start starts a server and returns when it is ready: its API answers, and
// the objects that every cluster has are there. It ends with ctx.
func Start(ctx context.Context, config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: config, stopped: make(chan struct{})}
	ctx, s.stop = context.WithCancel(ctx)
	if err := s.start(ctx); err != nil {
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
	address := net.JoinHostPort(s.config.BindAddress.String(), strconv.Itoa(s.config.Port))
	if s.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("serve API: %w", err)
	}
	s.config.Port = s.listener.Addr().(*net.TCPAddr).Port
	if s.config.AdvertiseAddress, err = s.config.advertised(); err != nil {
		return err
	}
	s.url = "https://" + net.JoinHostPort(s.config.reachable().String(), strconv.Itoa(s.config.Port))
	if s.authority, err = pki.Open(filepath.Join(s.config.DataDir, "pki")); err != nil {
		return err
	}
	s.backend, err = storage.Open(ctx, storage.Options{
		Dir:     filepath.Join(s.config.DataDir, "etcd"),
		Servers: s.config.EtcdServers,
		CAFile:  s.config.EtcdCAFile, CertFile: s.config.EtcdCertFile, KeyFile: s.config.EtcdKeyFile,
	})
	if err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	prepared := s.generic.PrepareRun()
	run := make(chan error, 1)
	go func() { run <- prepared.RunWithContext(ctx) }()
	s.running = true
	go s.supervise(run)
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	if err := s.bootstrap(ctx); err != nil {
		return err
	}
	return s.writeAdminKubeconfig()
}

// supervise waits for the server to end and then cleans up.
func (s *Server) supervise(run <-chan error) {
	var err error
	select {
	case err = <-run:
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

// release gives back what start took, in the opposite order.
func (s *Server) release() error {
	var errs []error
	if s.presence != nil {
		<-s.presence.closed
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
