package agent

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

// serviceHealth answers load balancers on the healthCheckNodePorts of Services
// with externalTrafficPolicy Local: whether this node has endpoints, and how
// many. The answers are kube-proxy's, in body, header and status, and so are the
// addresses: those at which node ports answer.
type serviceHealth struct {
	healthy func() bool // whether the agent keeps up and the node is eligible
	log     *slog.Logger
	// report writes an Event about a Service ("namespace/name") whose port can't be opened.
	report atomic.Pointer[func(service, message string)]

	mu      sync.Mutex
	counts  map[uint16]serviceEndpoints
	addrs   []netip.Addr // nil is every address
	stale   bool         // not all ports are as counts wants them
	servers map[healthPort]*http.Server
	failed  map[healthPort]*bindRetry
	retry   *time.Timer // opens what could not be opened; nil before the first failure
}

// healthPort is where one server listens: at every address if it has none.
type healthPort struct {
	addr netip.Addr
	port uint16
}

func (p healthPort) String() string {
	if !p.addr.IsValid() {
		return net.JoinHostPort("", strconv.Itoa(int(p.port)))
	}
	return netip.AddrPortFrom(p.addr, p.port).String()
}

// serviceEndpoints is what one health-check port tells.
type serviceEndpoints struct {
	Service string // "namespace/name"
	Local   int    // endpoints on this node
}

// reasonHealthPort is kube-proxy's reason of Events about health-check ports.
const reasonHealthPort = "FailedToStartServiceHealthcheck"

// Load balancers ask over and over, each in its own connection or by one that it keeps.
// Who says nothing for this long is not one of them.
const (
	healthReadTimeout = 10 * time.Second
	healthIdleTimeout = time.Minute
)

func newServiceHealth(healthy func() bool, log *slog.Logger) *serviceHealth {
	return &serviceHealth{healthy: healthy, log: log, counts: map[uint16]serviceEndpoints{}, servers: map[healthPort]*http.Server{}, failed: map[healthPort]*bindRetry{}}
}

// want replaces what is answered, by port; open makes it so.
func (s *serviceHealth) want(counts map[uint16]serviceEndpoints) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.stale = maps.Clone(counts), true
}

// at replaces the addresses; nil is all there are.
func (s *serviceHealth) at(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if (s.addrs == nil) != (addrs == nil) || !slices.Equal(s.addrs, addrs) {
		s.addrs, s.stale = addrs, true
	}
}

// open opens the ports that are wanted and closes the others; those that stay
// are never closed in between. It does nothing once all are as wanted. A port that can't
// be opened is reported, and tried again later and later.
func (s *serviceHealth) open() {
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
				s.log.Warn("close health check port", "address", at.String(), "error", err)
			}
		}
	}
	maps.DeleteFunc(s.failed, func(at healthPort, _ *bindRetry) bool { return !wanted[at] })
	for at := range wanted {
		if s.servers[at] == nil {
			s.try(at)
		}
	}
	s.stale = len(s.failed) > 0
	s.retryLater()
}

func (s *serviceHealth) wanted() map[healthPort]bool {
	all := map[healthPort]bool{}
	for port := range s.counts {
		if s.addrs == nil {
			all[healthPort{port: port}] = true
		}
		for _, a := range s.addrs {
			all[healthPort{a, port}] = true
		}
	}
	return all
}

func (s *serviceHealth) listen(at healthPort) error {
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
			s.log.Error("serve health check port", "address", at.String(), "error", err)
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
func (s *serviceHealth) close() {
	s.want(nil)
	s.open()
}
