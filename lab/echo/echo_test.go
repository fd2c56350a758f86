package echo_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/test/vm"
)

const waitTimeout = 30 * time.Second

// start runs a server in a namespace of its own and returns the namespace.
func start(t *testing.T, ports ...echo.Port) (*echo.Server, *netns.NS) {
	t.Helper()
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	s, err := echo.Start("hello-1", ports, ns.Do)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), ns.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, ns
}

func dial(t *testing.T, ns *netns.NS, network, address string) net.Conn {
	t.Helper()
	var c net.Conn
	err := ns.Do(func() (err error) {
		c, err = net.DialTimeout(network, address, waitTimeout)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHTTP(t *testing.T) {
	_, ns := start(t, echo.Port{Number: 80})
	for _, address := range []string{"127.0.0.1:80", "[::1]:80"} {
		c := dial(t, ns, "tcp", address)
		client := c.LocalAddr().String()
		answers := bufio.NewReader(c)
		for path, want := range map[string]string{
			"/hostname":           "hello-1\n",
			"/echo?msg=two+words": "two words\n",
			"/header?key=Accept":  "everything\n",
			"/clientip":           client + "\n",
			"/":                   "hostname: hello-1\nclient: " + client + "\nserver: " + address + "\n",
			"/healthz":            "hostname: hello-1\nclient: " + client + "\nserver: " + address + "\n",
		} {
			// All on one connection: keep-alive works.
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAccept: everything\r\n\r\n", path); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			if err != nil || resp.StatusCode != http.StatusOK || string(body) != want {
				t.Errorf("GET %s: %s %q, %v; want %q", path, resp.Status, body, err, want)
			}
		}
	}
}

func TestLines(t *testing.T) {
	_, ns := start(t, echo.Port{Number: 80, Protocol: "TCP"})
	c := dial(t, ns, "tcp", "127.0.0.1:80")
	answers := bufio.NewReader(c)
	// "GE" could still be HTTP, a line longer than the buffer can't.
	for _, line := range []string{"hello", "GE", "", strings.Repeat("x", 5000)} {
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := answers.ReadString('\n')
		if want := "hello-1 " + c.LocalAddr().String() + "\n"; err != nil || got != want {
			t.Errorf("answer to %.10q: %q, %v; want %q", line, got, err, want)
		}
	}
}

func TestUDP(t *testing.T) {
	_, ns := start(t, echo.Port{Number: 53, Protocol: "UDP"})
	for _, address := range []string{"127.0.0.1:53", "[::1]:53"} {
		c := dial(t, ns, "udp", address)
		client := c.LocalAddr().String()
		for question, want := range map[string]string{
			"?": "hello-1 " + client + "\n", "hostName": "hello-1", "clientip\n": client, "echo two words": "two words",
		} {
			if _, err := io.WriteString(c, question); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			n, err := c.Read(buf)
			if err != nil || string(buf[:n]) != want {
				t.Errorf("answer to %q: %q, %v; want %q", question, buf[:n], err, want)
			}
		}
	}
}

func TestDrain(t *testing.T) {
	s, ns := start(t, echo.Port{Number: 80})
	c := dial(t, ns, "tcp", "127.0.0.1:80")
	answers := bufio.NewReader(c)
	ask := func() {
		t.Helper()
		if _, err := io.WriteString(c, "still there?\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	drained := make(chan error)
	go func() { drained <- s.Drain(t.Context(), time.Millisecond) }()
	late := dial(t, ns, "tcp", "127.0.0.1:80") // still accepted
	ask()
	if err := late.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-drained:
		t.Errorf("drained with a connection left: %v", err)
	default:
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections left", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := ns.Do(func() error { _, err := net.Dial("tcp", "127.0.0.1:80"); return err }); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to a closed server: %v", err)
	}
}

func TestDrainGivesUp(t *testing.T) {
	s, ns := start(t, echo.Port{Number: 80})
	dial(t, ns, "tcp", "127.0.0.1:80")
	for late := range wait.Tries(waitTimeout) {
		if s.Connections() != 0 {
			break
		}
		if late {
			t.Fatal("the server doesn't take in the connection")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Drain(ctx, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain: %v, want the context's end", err)
	}
}

func TestBadPort(t *testing.T) {
	ns := netnstest.New(t)
	if s, err := echo.Start("x", []echo.Port{{Number: 1, Protocol: "ICMP"}}, ns.Do); err == nil {
		t.Error("ICMP accepted", s.Close())
	}
	twice := []echo.Port{{Number: 1}, {Number: 1}}
	if s, err := echo.Start("x", twice, ns.Do); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the same port twice: %v, %v", s, err)
	}
}

// TestSCTP needs a kernel with SCTP: where this one lacks it, the virtual machine's.
func TestSCTP(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		ns := netnstest.New(t)
		s, err := echo.Start("x", []echo.Port{{Number: 1, Protocol: "SCTP"}}, ns.Do)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}, "sctp")
}
