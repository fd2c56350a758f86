//go:build !race

package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// waitTimeout bounds how long a test waits for what has to happen.
const waitTimeout = 2 * time.Minute

// TestNothingLost: while pods are replaced, routes and certificates change, and
// the gateway itself is replaced, every request at a steady rate is answered, and
// WebSockets live on.
//
// FAIRWAY_NOTHING_LOST=long has what `make check NAME=nothing-lost` is for.
func TestNothingLost(t *testing.T) {
	rate, clients, rolls, changes, restarts, sockets := 200, 2, 1, 20, 2, 20
	if os.Getenv("FAIRWAY_NOTHING_LOST") == "long" {
		rate, clients, rolls, changes, restarts, sockets = 2000, 8, 50, 2000, 10, 1000
	}
	c := newCluster(t)
	c.fill()
	c.ready = []*pod{c.start(), c.start(), c.start()}
	c.writeSlices()
	c.startGateway(os.Args[0], oneVariable+"=1") // those that replace it have processes for Gateways
	c.serving()
	c.await("a gateway that is ready", isReady)
	idle := c.openSockets(sockets)

	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad()
	loaded := make(chan struct{})
	go func() { defer close(loaded); l.run(ctx, rate, clients) }()
	began := time.Now()
	for i := range rolls {
		c.roll()
		for n := range changes / rolls {
			c.route("web", (i+n)%8, "web.example")
		}
		c.renewCertificate()
		if i%max(rolls/restarts, 1) == 0 {
			c.replace(i / max(rolls/restarts, 1))
		}
	}
	if rolls < restarts {
		c.replace(1)
	}
	wait.Until(t, time.Minute, "what is asked after the last change", func() bool { // as the process before ends its idle connections, say
		return l.total() >= int64(4*rate) || t.Failed()
	})
	cancel()
	<-loaded
	took := time.Since(began)
	for i, s := range idle {
		if err := s.echo(); err != nil {
			t.Errorf("WebSocket %d: %v", i, err)
		}
		_ = s.Close()
	}
	var asked, answered int64
	for kind := range kinds {
		n, ok := l.asked[kind].Load(), l.answered[kind].Load()
		t.Logf("%-20s %7d asked, %d not answered", kind, n, n-ok)
		if n == 0 {
			t.Errorf("nothing was asked by %s", kind)
		}
		asked, answered = asked+n, answered+ok
	}
	t.Logf("%d requests in %s, %d failed; %d rolling updates, %d changes, %d WebSockets", asked, took.Round(time.Millisecond), asked-answered, rolls, changes, sockets)
	if asked != answered {
		t.Errorf("%d of %d requests failed:\n%s", asked-answered, asked, strings.Join(l.failures, "\n"))
	}
}

// startGateway runs the program as a gateway. It is killed with the test.
func (c *cluster) startGateway(program string, variables ...string) {
	c.Helper()
	command := exec.Command(program, "-test.run=^$")
	command.Env = append(append(os.Environ(), gatewayVariable+"="+c.kubeconfig), variables...)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	c.must(command.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = command.Wait() }() // it is killed in the end
	c.Cleanup(func() { _ = command.Process.Kill(); <-ended; c.killOrphans() })
}

// serving is the process that serves. It has written its number (gatewayMain).
func (c *cluster) serving() *os.Process {
	c.Helper()
	before := c.process
	var pid int
	for late := range wait.Tries(waitTimeout) {
		text, err := os.ReadFile(c.kubeconfig + pidSuffix)
		if err == nil {
			_, err = fmt.Sscanln(string(text), &pid)
		}
		if err == nil && (before == nil || pid != before.Pid) {
			break
		}
		if late {
			c.Fatalf("no new gateway: %q, %v", text, err)
		}
	}
	p, err := os.FindProcess(pid)
	c.must(err)
	c.Cleanup(func() { _ = p.Kill() })
	c.process = p
	return p
}

// replace has another process take over: started anew by the one before, or of
// another file, and the one before is told to end.
func (c *cluster) replace(i int) {
	c.Helper()
	before, old := startTime(c.Context()), c.process
	if i%2 == 1 {
		c.must(old.Signal(syscall.SIGUSR2))
		c.serving()
		c.awaitSuccessor(before)
		return
	}
	binary := filepath.Join(c.TempDir(), "other")
	c.must(copyFile(os.Args[0], binary))
	c.startGateway(binary)
	c.serving()
	c.awaitSuccessor(before)
	if err := old.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.Fatal(err)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

func (c *cluster) await(what string, so func(context.Context) bool) {
	c.Helper()
	for late := range wait.Tries(waitTimeout) {
		if so(c.Context()) {
			break
		}
		if late {
			c.Fatalf("there isn't %s", what)
		}
	}
}

// awaitSuccessor waits until another process than that of before is ready.
func (c *cluster) awaitSuccessor(before string) {
	c.Helper()
	c.await("a successor that is ready", func(ctx context.Context) bool {
		now := startTime(ctx)
		return now != "" && now != before && isReady(ctx)
	})
}

// get asks for a page of health and metrics; "" if there is none.
func get(ctx context.Context, path string) string {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+path, nil)
	if err != nil {
		return ""
	}
	q.Close = true
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

func isReady(ctx context.Context) bool { return get(ctx, "/readyz") != "" }

// startTime tells processes apart.
func startTime(ctx context.Context) string {
	_, rest, _ := strings.Cut(get(ctx, "/metrics"), "\nprocess_start_time_seconds ")
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// webSocket is a connection that was upgraded.
type webSocket struct {
	net.Conn
	lines *bufio.Reader
}

func (c *cluster) openSockets(n int) []*webSocket {
	c.Helper()
	var list []*webSocket
	for range n {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", plainPort))
		c.must(err)
		c.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: socket.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		c.must(err)
		s := &webSocket{conn, bufio.NewReader(conn)}
		c.must(conn.SetReadDeadline(time.Now().Add(waitTimeout)))
		response, err := http.ReadResponse(s.lines, nil)
		if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			c.Fatalf("answer %v, %v", response, err)
		}
		_ = response.Body.Close() // there is none
		c.must(s.echo())
		list = append(list, s)
	}
	return list
}

func (s *webSocket) echo() error {
	if err := s.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(s, "line\n"); err != nil {
		return err
	}
	if got, err := s.lines.ReadString('\n'); err != nil || got != "line\n" {
		return fmt.Errorf("got %q, %w", got, err)
	}
	return nil
}
