package fakeapi

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
)

// connectionKey finds a request's connection in its context.
type connectionKey struct{}

// connection is what a request came over.
type connection struct{ net.Conn }

// abort breaks the connection with a RST.
func (c *connection) abort() {
	under := c.Conn
	if secure, ok := under.(interface{ NetConn() net.Conn }); ok {
		under = secure.NetConn()
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is broken already
	}
	_ = under.Close()
}

// Listen serves at an address over TLS, with a certificate that the returned
// one (PEM) vouches for, until close is called.
func (s *Server) Listen(address string) (url string, ca []byte, closer func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, nil, err
	}
	server := &httptest.Server{Listener: l, EnableHTTP2: true, Config: &http.Server{
		Handler: s,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, &connection{c})
		},
	}}
	server.StartTLS()
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.URL, ca, func() { server.CloseClientConnections(); server.Close() }, nil
}
