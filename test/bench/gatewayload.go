package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

const (
	gatewayConnections = 32 // that are kept alive
	gatewaySlice       = 500 * time.Millisecond
	answerPort         = 8083 // of endpoints that speak HTTP
	answerSize         = 128
)

// answers are endpoints that speak just enough HTTP: each says its address.
type answers struct {
	listener net.Listener
	open     sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
}

func newAnswers(h *topology.Host) (*answers, error) {
	a := &answers{conns: map[net.Conn]struct{}{}}
	err := h.Do(func() (err error) {
		a.listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", answerPort))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", h.Name, err)
	}
	a.open.Go(func() {
		for {
			c, err := a.listener.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			a.conns[c] = struct{}{}
			a.mu.Unlock()
			a.open.Go(func() { a.serve(c) })
		}
	})
	return a, nil
}

func (a *answers) serve(c net.Conn) {
	defer func() {
		_ = c.Close() // the other end has gone
		a.mu.Lock()
		delete(a.conns, c)
		a.mu.Unlock()
	}()
	host, _, _ := net.SplitHostPort(c.LocalAddr().String()) // of TCP
	body := append([]byte(host), bytes.Repeat([]byte(" "), answerSize-len(host))...)
	answer := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", answerSize), body...)
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) <= 2 { // requests here have no body
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
}

func (a *answers) close() error {
	err := a.listener.Close()
	a.mu.Lock()
	for c := range a.conns {
		_ = c.Close() // it is over
	}
	a.mu.Unlock()
	a.open.Wait()
	return err
}

// askRaw sends a request on a connection that stays open.
func askRaw(c io.Writer, r *bufio.Reader, host, path string) (status int, body string, err error) {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"); err != nil {
		return 0, "", err
	}
	length := 0
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, "", err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case first && len(line) > 12:
			status, _ = strconv.Atoi(string(line[9:12])) // 0 is no status
		case len(line) == 0:
			content := make([]byte, length)
			_, err := io.ReadFull(r, content)
			text, _, _ := bytes.Cut(content, []byte(" "))
			return status, string(text), err
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, "", fmt.Errorf("length of the answer: %w", err)
			}
		}
	}
}

// requests asks for hosts all over the table on connections that are kept alive.
func (g *gateways) requests(ctx context.Context, c *contender) (int, error) {
	var n atomic.Int64
	err := together(gatewayConnections, func() error {
		connection, err := g.dial(ctx, c.plain)
		if err != nil {
			return err
		}
		defer connection.Close()
		r := bufio.NewReader(connection)
		for began := time.Now(); time.Since(began) < gatewaySlice; {
			s := g.hot[rand.IntN(len(g.hot))]
			status, body, err := askRaw(connection, r, s.name+".example.com", "/")
			if err != nil {
				return err
			}
			if status != 200 || body != s.addrs[0].String() {
				return fmt.Errorf("answer %d by %s for %s, want %s", status, body, s.name, s.addrs[0])
			}
			n.Add(1)
		}
		return nil
	})
	return int(n.Load()), err
}

// handshakes makes connections with a full TLS handshake each.
func (g *gateways) handshakes(ctx context.Context, c *contender) (int, error) {
	var n atomic.Int64
	config := &tls.Config{
		RootCAs: g.certificate.roots, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		CurvePreferences: []tls.CurveID{tls.X25519}, // Go would agree with itself on something dearer
	}
	err := together(4, func() error {
		for began := time.Now(); time.Since(began) < gatewaySlice; {
			connection, err := g.dial(ctx, c.secure)
			if err != nil {
				return err
			}
			one := config.Clone()
			one.ServerName = g.hot[rand.IntN(len(g.hot))].name + ".example.com"
			secured := tls.Client(connection, one)
			err = secured.HandshakeContext(ctx)
			if err = errors.Join(err, secured.Close()); err != nil {
				return err
			}
			n.Add(1)
		}
		return nil
	})
	return int(n.Load()), err
}

// together has n do the same at once.
func together(n int, do func() error) error {
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() { errs[i] = do() })
	}
	group.Wait()
	return errors.Join(errs...)
}
