package userspace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/model"
)

// waitTimeout is how long anything may take on a machine that is busy.
const waitTimeout = 2 * time.Minute

// eventually waits for something to become true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := range wait.Tries(waitTimeout) {
		if is() {
			break
		}
		if late {
			t.Fatalf("not so after %s: %s", waitTimeout, what)
		}
	}
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// pool has the name default/NAME: and these backends, each of weight 1.
func pool(name string, proto model.Protocol, backends ...netip.AddrPort) *model.Pool {
	p := &model.Pool{ID: model.PoolID{Name: "default/" + name + ":", Proto: proto}}
	for _, b := range backends {
		p.Backends = append(p.Backends, model.Backend{Addr: b.Addr(), Port: b.Port(), Weight: 1})
		p.ID.IPv6 = b.Addr().Is6()
	}
	return p
}

// tableOf has pools, each at an address and port.
func tableOf(at map[string]*model.Pool) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{Reserved: []netip.Prefix{prefix("10.96.0.0/16")}})
	for where, p := range at {
		ap := netip.MustParseAddrPort(where)
		route := model.Route{Pool: p.ID, Masquerade: true}
		e.SetPool(p)
		e.SetFrontend(&model.Frontend{
			Key: model.Key{Addr: ap.Addr(), Port: ap.Port(), Proto: p.ID.Proto}, Name: p.ID.Name,
			Routes: [model.NumOrigins]model.Route{route, route, route},
		})
	}
	return e.Table()
}

// with is a table with another pool in the place of the one with its id.
func with(t *model.Table, p *model.Pool) *model.Table {
	e := t.Edit()
	e.SetPool(p)
	return e.Table()
}

// inProcess is a relay without a process of its own.
func inProcess(t *testing.T) *relay {
	r := newRelay(model.DefaultScheduler)
	t.Cleanup(r.exit)
	return r
}

func applyTo(t *testing.T, r *relay, table *model.Table) {
	t.Helper()
	if failed := r.apply(table.Delta(r.current())); failed != nil {
		t.Fatal(failed)
	}
}

// tcpBackend serves every connection with a function, until the test ends.
func tcpBackend(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(l.Close()) })
	go func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// echo answers every line with a name and the line.
func echo(name string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		defer func() { discard(c.Close()) }()
		for in := bufio.NewReader(c); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(c, "%s %s", name, line); err != nil {
				return
			}
		}
	}
}

// client is a connection whose other end echoes.
type client struct {
	net.Conn
	in *bufio.Reader
}

func dialEcho(where string) (*client, error) {
	conn, err := net.DialTimeout("tcp", where, waitTimeout)
	if err != nil {
		return nil, err
	}
	return &client{conn, bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(2 * waitTimeout))
}

func mustDial(t *testing.T, where string) *client {
	t.Helper()
	c, err := dialEcho(where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(c.Close()) })
	return c
}

// say tells who answers.
func (c *client) say() (string, error) {
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return "", err
	}
	line, err := c.in.ReadString('\n')
	name, _, _ := strings.Cut(line, " ")
	return name, err
}

func (c *client) mustSay(t *testing.T, want string) {
	t.Helper()
	if got, err := c.say(); err != nil || got != want {
		t.Fatalf("answered by %q, %v; want %q", got, err, want)
	}
}

// mustEnd waits for the connection to be reset, or closed.
func (c *client) mustEnd(t *testing.T) {
	t.Helper()
	var timeout net.Error
	if _, err := io.Copy(io.Discard, c.in); errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the connection lives on")
	}
}

// udpBackend answers every datagram with a name and the client it sees; those
// that say "hush" are heard only.
func udpBackend(t *testing.T, name string) (netip.AddrPort, *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(conn.Close()) })
	var heard atomic.Int32
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			heard.Add(1)
			if err == nil && string(buffer[:n]) != "hush" {
				_, err = conn.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s", name, from), from)
				discard(err)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort(), &heard
}

func dialUDP(t *testing.T, where string) *net.UDPConn {
	t.Helper()
	conn, err := net.Dial("udp", where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(conn.Close()) })
	return conn.(*net.UDPConn)
}

// exchange sends datagrams until one is answered: by whom, and who it saw.
func exchange(t *testing.T, conn *net.UDPConn) string {
	t.Helper()
	answer := make([]byte, 2048)
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
		if _, err := conn.Write([]byte("hello")); err != nil {
			continue // an ICMP error about an earlier one
		}
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(answer); err == nil {
			return string(answer[:n])
		}
	}
	t.Fatal("no answer")
	return ""
}
