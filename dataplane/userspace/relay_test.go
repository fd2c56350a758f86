package userspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

const vip = "127.0.96.1:80"

func TestHalfClose(t *testing.T) {
	r := inProcess(t)
	askFirst := tcpBackend(t, func(c *net.TCPConn) { // answers when the question has ended
		question, err := io.ReadAll(c)
		discard(err)
		_, err = fmt.Fprintf(c, "you said %q", question)
		discard(errors.Join(err, c.Close()))
	})
	answers := make(chan string, 1)
	greetFirst := tcpBackend(t, func(c *net.TCPConn) { // listens when its greeting has ended
		_, err := io.WriteString(c, "welcome")
		discard(errors.Join(err, c.CloseWrite()))
		answer, err := io.ReadAll(c)
		answers <- fmt.Sprint(string(answer), err)
	})
	applyTo(t, r, tableOf(map[string]*model.Pool{vip: pool("ask", model.TCP, askFirst), "127.0.96.1:81": pool("greet", model.TCP, greetFirst)}))

	c := mustDial(t, vip)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != `you said "hello"` {
		t.Errorf("%q, %v", got, err)
	}
	c = mustDial(t, "127.0.96.1:81")
	if got, err := io.ReadAll(c); err != nil || string(got) != "welcome" {
		t.Errorf("%q, %v", got, err)
	}
	_, err := io.WriteString(c, "thanks")
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got != "thanks<nil>" {
		t.Errorf("the backend got %s", got)
	}
	eventually(t, "no flow is left", func() bool { return r.flows.count() == 0 })
}

func TestResetIsPassedOn(t *testing.T) {
	r := inProcess(t)
	rude := tcpBackend(t, func(c *net.TCPConn) {
		_, err := c.Read(make([]byte, 1))
		discard(err)
		reset(c)
	})
	applyTo(t, r, tableOf(map[string]*model.Pool{vip: pool("web", model.TCP, rude)}))
	c := mustDial(t, vip)
	if _, err := io.WriteString(c, "?"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a reset looks like an orderly end")
	}
}

func TestBackpressure(t *testing.T) {
	r := inProcess(t)
	read, got := make(chan struct{}), make(chan []byte, 1)
	slow := tcpBackend(t, func(c *net.TCPConn) {
		<-read
		all, err := io.ReadAll(c)
		discard(err)
		got <- all
	})
	applyTo(t, r, tableOf(map[string]*model.Pool{vip: pool("web", model.TCP, slow)}))
	c := mustDial(t, vip)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chunk, sent := bytes.Repeat([]byte("fairway."), 8192), 0
	for sent < 1<<30 {
		if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Write(chunk)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	// What the kernel keeps in sockets and pipes, at most (tcp_wmem, tcp_rmem).
	if sent > 256<<20 {
		t.Errorf("%d MB were taken for a backend that reads nothing", sent>>20)
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("%d MB of them are in the relay's memory", grown>>20)
	}
	close(read)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	all := <-got
	if want := bytes.Repeat(chunk, sent/len(chunk)+1)[:sent]; !bytes.Equal(all, want) {
		t.Errorf("%d bytes came of %d, or others", len(all), sent)
	}
}

// TestManyConnections has tens of thousands of connections at a time, after which
// nothing is left: 20,000 where a process may have descriptors enough for their
// four ends. Raising the limit takes CAP_SYS_RESOURCE, which containers lack;
// there it is what the limit allows.
func TestManyConnections(t *testing.T) {
	raiseLimit()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	many := int(min(20000, limit.Cur/5))
	r := inProcess(t)
	r.dialTimeout = waitTimeout
	backend := tcpBackend(t, echo("a"))
	applyTo(t, r, tableOf(map[string]*model.Pool{vip: pool("web", model.TCP, backend)}))
	mustDial(t, vip).mustSay(t, "a") // so that the runtime has all it needs
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	clients := make(chan *client, many)
	var workers sync.WaitGroup
	for range 20 {
		workers.Go(func() {
			for range many / 20 {
				c, err := dialEcho(vip)
				if err != nil {
					t.Error(err)
					return
				}
				clients <- c
				if who, err := c.say(); err != nil || who != "a" {
					t.Errorf("answered by %q, %v", who, err)
				}
			}
		})
	}
	workers.Wait()
	if n := r.flows.count(); n != many+1 {
		t.Errorf("%d flows, want %d", n, many+1)
	}
	// Idle ones have no pipes: the client's, the relay's two and the backend's.
	// (Pipes wait in a pool that is emptied with the garbage.)
	eventually(t, "an idle connection has two descriptors", func() bool {
		runtime.GC()
		return openDescriptors(t)-descriptors < 4*many+100
	})
	t.Logf("%d connections take %d goroutines of the relay, its clients and its backend", many, runtime.NumGoroutine()-goroutines)
	close(clients)
	for c := range clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "goroutines and descriptors are as before", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() <= goroutines+5 && openDescriptors(t) <= descriptors+20
	})
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestBackendsDontAnswer: a client isn't kept waiting for each of very many endpoints that
// don't answer.
func TestBackendsDontAnswer(t *testing.T) {
	full, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(unix.Close(full)) })
	if err := errors.Join(unix.Bind(full, &unix.SockaddrInet4{}), unix.Listen(full, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(full)
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(at.(*unix.SockaddrInet4).Port)
	filler, err := net.Dial("tcp", netip.AddrPortFrom(addr("127.0.0.1"), port).String()) // nobody accepts it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(filler.Close()) })
	var silent []netip.AddrPort
	for i := range 100 {
		silent = append(silent, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), port))
	}
	r := inProcess(t)
	r.dialTimeout, r.dialAllTimeout = 20*time.Millisecond, 50*time.Millisecond
	p := pool("web", model.TCP, silent...)
	conn, _ := r.dial(model.Verdict{Pool: p, Src: addr("127.0.0.1")}, netip.AddrPort{})
	if conn != nil {
		discard(conn.Close())
		t.Fatal("one has answered")
	}
	if tried := r.balancer.pools[p.ID].turn; tried > 10 {
		t.Errorf("%d endpoints were tried", tried)
	}
}

func TestUDPIdle(t *testing.T) {
	r := inProcess(t)
	r.udpUnanswered, r.udpAnswered = 200*time.Millisecond, 400*time.Millisecond
	backend, heard := udpBackend(t, "a")
	applyTo(t, r, tableOf(map[string]*model.Pool{vip: pool("dns", model.UDP, backend)}))
	conn := dialUDP(t, vip)
	for range 2 {
		exchange(t, conn)
		eventually(t, "an answered session has ended", func() bool { return r.flows.count() == 0 })
	}
	before := heard.Load()
	if _, err := conn.Write([]byte("hush")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the backend has heard it", func() bool { return heard.Load() > before })
	eventually(t, "an unanswered session has ended", func() bool { return r.flows.count() == 0 })
}

func TestUDPMoves(t *testing.T) {
	r := inProcess(t)
	a, _ := udpBackend(t, "a")
	b, _ := udpBackend(t, "b")
	table := tableOf(map[string]*model.Pool{vip: pool("dns", model.UDP, a)})
	applyTo(t, r, table)
	conn := dialUDP(t, vip)
	was := exchange(t, conn)
	draining := pool("dns", model.UDP, b)
	draining.Draining = pool("", model.UDP, a).Backends
	table = with(table, draining)
	applyTo(t, r, table)
	if is := exchange(t, conn); is != was {
		t.Errorf("%s, while draining %s", was, is)
	}
	applyTo(t, r, with(table, pool("dns", model.UDP, b)))
	if is := exchange(t, conn); !strings.HasPrefix(is, "b ") {
		t.Errorf("%s, after its backend had gone %s", was, is)
	}
}

func TestOrphans(t *testing.T) {
	for name, test := range map[string]struct {
		orphans model.Orphans
		lives   bool
	}{
		"keep": {model.OrphansKeep, true}, "reset": {model.OrphansReset, false}, "deadline": {model.OrphansDeadline, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := inProcess(t)
			p := pool("web", model.TCP, tcpBackend(t, echo("a")))
			p.Orphans, p.OrphanDeadline = test.orphans, 100*time.Millisecond
			table := tableOf(map[string]*model.Pool{vip: p})
			applyTo(t, r, table)
			c := mustDial(t, vip)
			c.mustSay(t, "a")
			rest := pool("web", model.TCP, tcpBackend(t, echo("b")))
			rest.Orphans, rest.OrphanDeadline = p.Orphans, p.OrphanDeadline
			applyTo(t, r, with(table, rest))
			mustDial(t, vip).mustSay(t, "b")
			if test.lives {
				c.mustSay(t, "a")
			} else {
				c.mustEnd(t)
			}
		})
	}
}

// TestOrphansReturn has one of two backends that went come back in time.
func TestOrphansReturn(t *testing.T) {
	r := inProcess(t)
	a, b := tcpBackend(t, echo("a")), tcpBackend(t, echo("b"))
	one, other := pool("one", model.TCP, a), pool("other", model.TCP, b)
	for _, p := range []*model.Pool{one, other} {
		p.Orphans, p.OrphanDeadline = model.OrphansDeadline, 3*time.Second // in which a busy machine applies two tables
	}
	table := tableOf(map[string]*model.Pool{vip: one, "127.0.96.2:80": other})
	applyTo(t, r, table)
	returns, goes := mustDial(t, vip), mustDial(t, "127.0.96.2:80")
	returns.mustSay(t, "a")
	goes.mustSay(t, "b")
	without := func(p *model.Pool) *model.Pool { q := *p; q.Backends = nil; return &q }
	applyTo(t, r, with(table, without(one)))
	applyTo(t, r, with(table, without(other)))
	goes.mustEnd(t) // the deadline of the first is over, too
	returns.mustSay(t, "a")
}

// TestSettle has backends go between the choice and the connection.
func TestSettle(t *testing.T) {
	r := inProcess(t)
	p := pool("web", model.TCP, first)
	p.Orphans = model.OrphansReset
	ended := false
	f := &flow{pool: p.ID, backend: first, end: func() { ended = true }}
	if r.recheck(f, p); !ended {
		t.Error("a flow of a pool that is gone lives on")
	}
	ended = false
	applyTo(t, r, tableOf(map[string]*model.Pool{vip: p}))
	if r.recheck(f, p); ended {
		t.Error("a flow was ended whose backend is there")
	}
}

// TestRefuse has ports that are open for others refuse the node.
func TestRefuse(t *testing.T) {
	for name, where := range map[string]string{"IPv4": "127.0.96.1:53", "IPv6": "[::1]:53"} {
		t.Run(name, func(t *testing.T) {
			ap := netip.MustParseAddrPort(where)
			full, empty := pool("dns", model.UDP, ap), pool("none", model.UDP)
			empty.ID.IPv6 = full.ID.IPv6
			e := tableOf(map[string]*model.Pool{where: full}).Edit()
			e.SetPool(empty)
			e.SetFrontend(&model.Frontend{
				Key: model.Key{Addr: ap.Addr(), Port: ap.Port(), Proto: model.UDP}, Name: "default/dns:",
				Routes: [model.NumOrigins]model.Route{{Pool: full.ID}, model.FromNode: {Pool: empty.ID}, model.FromOutside: {Pool: full.ID}},
			})
			r := inProcess(t)
			applyTo(t, r, e.Table())
			conn := dialUDP(t, where)
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%v, want a refusal", err)
			}
		})
	}
}

// TestFilesAreLeftForConnections: with more frontends than files, those that
// have a listener work, and the result says once why others have none. These get one with
// the next change for which there are files.
func TestFilesAreLeftForConnections(t *testing.T) {
	backend := tcpBackend(t, echo("one"))
	at := map[string]*model.Pool{}
	for i := range 20 {
		at[fmt.Sprintf("127.0.2.%d:80", i+1)] = pool(fmt.Sprintf("service-%d", i), model.TCP, backend)
	}
	table := tableOf(at)
	r := inProcess(t)
	r.most = 12
	failed := r.apply(table.Delta(r.current()))
	if len(failed) != 1 || !strings.Contains(failed[0].Why, "20 Service addresses") {
		t.Errorf("left out: %v", failed)
	}
	if n := len(r.openKeys()); n != 12 {
		t.Errorf("%d listeners, want 12", n)
	}
	r.most = 20
	if failed := r.apply(table.Delta(table)); len(failed) != 0 {
		t.Errorf("with enough files: %v", failed)
	}
}
