package native

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/time/rate"

	"github.com/fairway-net/fairway/ingress/model"
)

const (
	// maxUnknown is how many connections a second may begin from addresses that
	// nobody has answered from. More of them are asked to show that they get what is
	// sent there (RFC 9000, 8.1.2), so that nobody has the gateway write to others.
	maxUnknown = 200
	// altSvcAge is for how long, in seconds, clients may believe that there is HTTP/3.
	altSvcAge = 3600
)

// udp is the part of a socket that speaks HTTP/3. What has no listener for
// requests over TLS isn't served. There is no 0-RTT: what is replayed would be a
// request again.
type udp struct {
	transport *quic.Transport
	listener  *quic.Listener
	server    *http3.Server
	done      chan struct{}
}

// openUDP listens beside the socket's TCP port.
func (s *socket) openUDP() (*udp, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.address()))
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP/3: %w", err)
	}
	unknown := rate.NewLimiter(maxUnknown, maxUnknown)
	u := &udp{
		transport: &quic.Transport{Conn: conn, VerifySourceAddress: func(net.Addr) bool { return !unknown.Allow() }},
		server: &http3.Server{
			Handler: s, MaxHeaderBytes: maxHeaderBytes, IdleTimeout: idleTimeout,
			Logger: slog.New(slog.DiscardHandler), // what clients do wrong
		},
		done: make(chan struct{}),
	}
	config := &quic.Config{HandshakeIdleTimeout: headerTimeout, MaxIdleTimeout: idleTimeout, MaxIncomingStreams: maxStreams}
	u.listener, err = u.transport.Listen(http3.ConfigureTLSConfig(&tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: s.requestsOnly}), config)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for HTTP/3: %w", err), conn.Close())
	}
	go func() {
		defer close(u.done)
		if err := u.server.ServeListener(u.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, quic.ErrServerClosed) && !errors.Is(err, quic.ErrTransportClosed) {
			s.engine.log.Error("HTTP/3 ended", "socket", s.current.Load().model.Name, "error", err)
		}
	}()
	return u, nil
}

// requestsOnly is the configuration of a listener for requests.
func (s *socket) requestsOnly(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	l := s.current.Load().model.Listener(strings.ToLower(hello.ServerName))
	if l == nil || l.Mode != model.HTTP {
		return nil, errNoListener
	}
	return s.configFor(hello)
}

// setUDP opens or closes the part for HTTP/3, as the table says.
func (s *socket) setUDP(m *model.Socket) error {
	wanted := m.HTTP3 && m.TLS && s.engine.options.HTTP3
	now := s.udp.Load()
	switch {
	case wanted && now == nil:
		u, err := s.openUDP()
		if err != nil {
			return err
		}
		s.udp.Store(u)
	case !wanted && now != nil:
		s.udp.Store(nil)
		s.engine.draining.Go(func() { s.closeUDP(now) })
	}
	return nil
}

// closeUDP tells clients that connections end (GOAWAY), and waits for requests
// as long as Options.Grace: the port is the next process's. Clients that go on
// make a new connection.
func (s *socket) closeUDP(u *udp) {
	ctx, cancel := context.WithTimeout(context.Background(), s.engine.options.Grace)
	defer cancel()
	_ = u.server.Shutdown(ctx)   // what remains is cut
	_ = u.server.Close()         // nothing is lost by an error
	_ = u.transport.Close()      // nor here
	_ = u.transport.Conn.Close() // nor here
	<-u.done
}

// announce tells clients of HTTP/3, if there is any.
func (x *exchange) announce(h http.Header) {
	if x.request.TLS && !x.isHTTP3 && x.socket.udp.Load() != nil {
		h["Alt-Svc"] = []string{fmt.Sprintf(`h3=":%d"; ma=%d`, x.decision.Socket.Port, altSvcAge)}
	}
}
