//go:build !race

package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// load asks at a steady rate, in several ways, and counts.
type load struct {
	asked, answered map[string]*atomic.Int64
	mu              sync.Mutex
	failures        []string // the first ones
}

// kinds are the ways to ask, with what makes one client of it.
var kinds = map[string]func() asker{
	"HTTP/1.1 keep-alive": func() asker { return &keptAlive{} },
	"HTTP/1.1":            func() asker { return &keptAlive{close: true} },
	"HTTPS":               func() asker { return &keptAlive{close: true, secure: true} },
	"HTTPS keep-alive":    func() asker { return &keptAlive{secure: true} },
	"HTTP/2":              newH2,
	"gRPC":                newGRPC,
}

// asker is a client that asks once at a time.
type asker interface {
	ask(ctx context.Context) error
	end()
}

const answerLimit = 2 * time.Minute // only so that a test ends

func newLoad() *load {
	l := &load{asked: map[string]*atomic.Int64{}, answered: map[string]*atomic.Int64{}}
	for kind := range kinds {
		l.asked[kind], l.answered[kind] = new(atomic.Int64), new(atomic.Int64)
	}
	return l
}

// run asks so often per second, with so many clients of each kind, until ctx is
// done and all answers are there.
func (l *load) run(ctx context.Context, perSecond, clients int) {
	interval := time.Duration(len(kinds)*clients) * time.Second / time.Duration(perSecond)
	var all sync.WaitGroup
	n := 0
	for kind, make := range kinds {
		asked, answered := l.asked[kind], l.answered[kind]
		for range clients {
			n++
			first := interval * time.Duration(n) / time.Duration(len(kinds)*clients)
			all.Go(func() {
				c := make()
				defer c.end()
				for next := time.Now().Add(first); ; next = next.Add(interval) {
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Until(next)):
					}
					asked.Add(1)
					if err := c.ask(context.WithoutCancel(ctx)); err != nil {
						l.fail(kind, err)
						continue
					}
					answered.Add(1)
				}
			})
		}
	}
	all.Wait()
}

// total is how much was asked so far.
func (l *load) total() (n int64) {
	for kind := range kinds {
		n += l.asked[kind].Load()
	}
	return n
}

func (l *load) fail(kind string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failures) < 20 {
		l.failures = append(l.failures, fmt.Sprintf("%s %s: %v", time.Now().Format("05.000"), kind, err))
	}
}

// keptAlive is a client of HTTP/1.1 that never asks twice: whatever goes wrong
// is a failure.
type keptAlive struct {
	close, secure bool
	conn          net.Conn
	reader        *bufio.Reader
}

func (k *keptAlive) ask(ctx context.Context) error {
	if k.conn == nil {
		if err := k.connect(ctx); err != nil {
			return err
		}
	}
	kept, err := k.exchange()
	if err != nil || !kept || k.close {
		k.end()
	}
	return err
}

func (k *keptAlive) connect(ctx context.Context) (err error) {
	var d net.Dialer
	if k.secure {
		d := tls.Dialer{Config: &tls.Config{ServerName: "web.example", InsecureSkipVerify: true}} //nolint:gosec // certificates change all the time
		k.conn, err = d.DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", securePort))
	} else {
		k.conn, err = d.DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", plainPort))
	}
	if err != nil {
		k.conn = nil
		return err
	}
	k.reader = bufio.NewReader(k.conn)
	return nil
}

func (k *keptAlive) exchange() (kept bool, err error) {
	if err := k.conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return false, err
	}
	head := "GET / HTTP/1.1\r\nHost: web.example\r\n"
	if k.close {
		head += "Connection: close\r\n"
	}
	if _, err := io.WriteString(k.conn, head+"\r\n"); err != nil {
		return false, err
	}
	response, err := http.ReadResponse(k.reader, nil)
	if err != nil {
		return false, fmt.Errorf("no answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %d %s", response.StatusCode, body)
	}
	return !response.Close, err
}

func (k *keptAlive) end() {
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
}

// h2 is a client of HTTP/2 without TLS. A stream that a GOAWAY says was not
// looked at is asked again by net/http (RFC 9113, 6.8).
type h2 struct{ http.Client }

func newH2() asker {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &h2{http.Client{Timeout: answerLimit, Transport: &http.Transport{Protocols: &p}}}
}

func (h *h2) ask(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", plainPort), nil)
	if err != nil {
		return err
	}
	q.Host = "web.example"
	response, err := h.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %d", response.StatusCode)
	}
	return nil
}

func (h *h2) end() { h.CloseIdleConnections() }

// grpcClient is grpc-go's, without retries of a policy.
type grpcClient struct{ conn *grpc.ClientConn }

func newGRPC() asker {
	c, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", plainPort), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("grpc.example"), grpc.WithDisableServiceConfig())
	if err != nil {
		panic(err) // the address is good
	}
	return &grpcClient{c}
}

func (g *grpcClient) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	r, err := healthpb.NewHealthClient(g.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err == nil && r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		err = errors.New("it doesn't serve")
	}
	return err
}

func (g *grpcClient) end() { _ = g.conn.Close() }
