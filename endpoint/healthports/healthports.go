// Package healthports answers load balancers on the healthCheckNodePorts of Services.
//
// healthports.go opens the ports and answers, retry.go tries again those that are taken.
package healthports

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Ports answers load balancers on the healthCheckNodePorts of Services
// with externalTrafficPolicy Local: whether this node has endpoints, and how
// many. The answers are kube-proxy's, in body, header and status, and so are the
// addresses: those at which node ports answer.
type Ports struct {
	healthy func() bool // whether the agent keeps up and the node is eligible
	log     *slog.Logger
	// Report writes an Event about a Service ("namespace/name") whose port can't be opened.
	Report atomic.Pointer[func(service, message string)]

	mu      sync.Mutex
	counts  map[uint16]Answer
	addrs   []netip.Addr // nil is every address
	stale   bool         // not all ports are as counts wants them
	servers map[listenAt]*http.Server
	failed  map[listenAt]*bindRetry
	retry   *time.Timer // opens what could not be opened; nil before the first failure
}

// listenAt is where one server listens: at every address if it has none.
type listenAt struct {
	addr netip.Addr
	port uint16
}

func (p listenAt) String() string {
	if !p.addr.IsValid() {
		return net.JoinHostPort("", strconv.Itoa(int(p.port)))
	}
	return netip.AddrPortFrom(p.addr, p.port).String()
}

// Answer is what one health-check port tells.
type Answer struct {
	Service string // "namespace/name"
	Local   int    // endpoints on this node
}

// Reason is kube-proxy's reason of Events about health-check ports.
const Reason = "FailedToStartServiceHealthcheck"

// Load balancers ask over and over, each in its own connection or by one that it keeps.
// Who says nothing for this long is not one of them.
const (
	healthReadTimeout = 10 * time.Second
	healthIdleTimeout = time.Minute
)

// New makes what answers; it opens no port yet.
func New(healthy func() bool, log *slog.Logger) *Ports {
	return &Ports{healthy: healthy, log: log, counts: map[uint16]Answer{}, servers: map[listenAt]*http.Server{}, failed: map[listenAt]*bindRetry{}}
}

// Want replaces what is answered, by port; open makes it so.
func (s *Ports) Want(counts map[uint16]Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.stale = maps.Clone(counts), true
}

// At replaces the addresses; nil is all there are.
func (s *Ports) At(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (s.addrs == nil) != (addrs == nil) || !slices.Equal(s.addrs, addrs) {
		s.addrs, s.stale = addrs, true
	}
}

// Open opens the ports that are wanted and closes the others; those that stay
// are never closed in between. It does nothing once all are as wanted. A port that can't
// be opened is reported, and tried again later and later.
func (s *Ports) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stale {
		return
	}
	wanted := s.wanted()
	for at, server := range s.servers {
		if !wanted[at] {
			delete(s.servers, at)
			if err := server.Close(); err != nil {
				s.log.Warn("a health check port could not be closed", "address", at.String(), "error", err)
			}
		}
	}
	maps.DeleteFunc(s.failed, func(at listenAt, _ *bindRetry) bool { return !wanted[at] })
	for at := range wanted {
		if s.servers[at] == nil {
			s.try(at)
		}
	}
	s.stale = len(s.failed) > 0
	s.retryLater()
}

func (s *Ports) wanted() map[listenAt]bool {
	all := map[listenAt]bool{}
	for port := range s.counts {
		if s.addrs == nil {
			all[listenAt{port: port}] = true
		}
		for _, a := range s.addrs {
			all[listenAt{a, port}] = true
		}
	}
	return all
}

func (s *Ports) listen(at listenAt) error {
	listener, err := net.Listen("tcp", at.String())
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: s.handler(at.port), ReadHeaderTimeout: healthReadTimeout, ReadTimeout: healthReadTimeout,
		WriteTimeout: healthReadTimeout, IdleTimeout: healthIdleTimeout, MaxHeaderBytes: 16 << 10,
	}
	s.servers[at] = server
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("a health check port could not be served", "address", at.String(), "error", err)
		}
	}()
	return nil
}

func (s *Ports) handler(port uint16) http.Handler {
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

// Close ends all servers.
func (s *Ports) Close() {
	s.Want(nil)
	s.Open()
}
