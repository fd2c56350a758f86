package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// serviceHealth answers load balancers on the healthCheckNodePorts of Services
// with externalTrafficPolicy Local: whether this node has endpoints, and how
// many. The answers are kube-proxy's, in body, header and status.
type serviceHealth struct {
	healthy func() bool // whether the agent keeps up and the node is eligible
	log     *slog.Logger

	mu      sync.Mutex
	counts  map[uint16]serviceEndpoints
	stale   bool // not all ports are as counts wants them
	servers map[uint16]*http.Server
}

// serviceEndpoints is what one health-check port tells.
type serviceEndpoints struct {
	Service string // "namespace/name"
	Local   int    // endpoints on this node
}

func newServiceHealth(healthy func() bool, log *slog.Logger) *serviceHealth {
	return &serviceHealth{healthy: healthy, log: log, counts: map[uint16]serviceEndpoints{}, servers: map[uint16]*http.Server{}}
}

// want replaces what is answered, by port; open makes it so.
func (s *serviceHealth) want(counts map[uint16]serviceEndpoints) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.stale = maps.Clone(counts), true
}

// open opens the ports that are wanted and closes the others; those that stay
// are never closed in between. It does nothing once all are as wanted. The error
// names the ports that can't be opened: they are tried again with the next call.
func (s *serviceHealth) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stale {
		return nil
	}
	var failed []error
	for port, server := range s.servers {
		if _, wanted := s.counts[port]; !wanted {
			delete(s.servers, port)
			if err := server.Close(); err != nil {
				failed = append(failed, fmt.Errorf("close health check port %d: %w", port, err))
			}
		}
	}
	for port, c := range s.counts {
		if s.servers[port] != nil {
			continue
		}
		if err := s.listen(port); err != nil {
			failed = append(failed, fmt.Errorf("service %s: open health check port %d: %w", c.Service, port, err))
		}
	}
	s.stale = len(failed) > 0
	return errors.Join(failed...)
}

func (s *serviceHealth) listen(port uint16) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(port), ReadHeaderTimeout: 10 * time.Second}
	s.servers[port] = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("serve health check port", "port", port, "error", err)
		}
	}()
	return nil
}

func (s *serviceHealth) handler(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		c := s.counts[port]
		s.mu.Unlock()
		healthy := s.healthy()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(c.Local))
		if c.Local == 0 || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		namespace, name, _ := strings.Cut(c.Service, "/")
		err := json.NewEncoder(w).Encode(map[string]any{
			"service":             map[string]string{"namespace": namespace, "name": name},
			"localEndpoints":      c.Local,
			"serviceProxyHealthy": healthy,
		})
		if err != nil {
			return // the client went away
		}
	})
}

// close ends all servers.
func (s *serviceHealth) close() error {
	s.want(nil)
	return s.open()
}
