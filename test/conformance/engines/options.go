package engines

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// Options are those that all engines have.
type Options struct {
	PerClient int
	Access    func(*model.Access)
}

// RunOptions runs the tests of options.
func RunOptions(t *testing.T, start func(*testing.T, Options) Engine) {
	t.Run("PerClient", func(t *testing.T) { testPerClient(t, start) })
	t.Run("Access", func(t *testing.T) { testAccess(t, start) })
}

// testPerClient: a client that has as many connections as it may gets no more, and
// others get theirs.
func testPerClient(t *testing.T, start func(*testing.T, Options) Engine) {
	const most = 50
	r := &rig{t: t, Engine: start(t, Options{PerClient: most})}
	e := r.endpoint("e", nil)
	r.apply(table([]*model.Rule{below("/", to("p"))}, pool("p", e)))
	dial := func(from string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
		return d.Dial("tcp", r.address().String())
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	open := 0
	for range 10 * most {
		c, err := dial("127.0.0.2")
		if err != nil {
			continue // refused at once
		}
		held = append(held, c)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n"); err == nil {
			open++
		}
	}
	if open < most {
		t.Errorf("only %d connections of %d could be made", open, most)
	}
	if left := alive(held); left != most {
		t.Errorf("%d connections of one client are open, want %d", left, most)
	}
	other, err := dial("127.0.0.3")
	if err != nil {
		t.Fatalf("another client is refused: %v", err)
	}
	defer func() { _ = other.Close() }()
	if err := answered(other); err != nil {
		t.Errorf("another client: %v", err)
	}
	for _, c := range held {
		_ = c.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := dial("127.0.0.2")
		if err == nil {
			err = answered(c)
			_ = c.Close()
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the client has none left, and gets no new one: %v", err)
		}
	}
}

// alive counts the connections that the other end leaves open.
func alive(list []net.Conn) int {
	var wait sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for _, c := range list {
		wait.Go(func() {
			_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
			_, err := c.Read(make([]byte, 1))
			mu.Lock()
			defer mu.Unlock()
			if timeout, is := err.(net.Error); is && timeout.Timeout() { //nolint:errorlint // it is the connection's own
				n++
			}
		})
	}
	wait.Wait()
	return n
}

func answered(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	all, err := io.ReadAll(c)
	if err == nil && len(all) < len("HTTP/1.1 200") {
		err = fmt.Errorf("answer %q", all)
	}
	return err
}

// testAccess: each request is told once, with what it was and who answered; what
// clients say is told as it is, whatever it is.
func testAccess(t *testing.T, start func(*testing.T, Options) Engine) {
	told := make(chan *model.Access, 100)
	r := &rig{t: t, Engine: start(t, Options{Access: func(a *model.Access) { told <- a }})}
	e := r.endpoint("e", nil)
	r.apply(table([]*model.Rule{below("/a", to("p"))}, pool("p", e)))
	c := client(r.address(), http1)
	for path, want := range map[string]model.Access{
		"/a/b":               {Path: "/a/b", Status: http.StatusOK, Endpoint: e.addr().String()},
		"/gone":              {Path: "/gone", Status: http.StatusNotFound},
		"/a/%22,%22x%22:%5C": {Path: "/a/%22,%22x%22:%5C", Status: http.StatusOK, Endpoint: e.addr().String()},
		"/a/%0A%C3%A9":       {Path: "/a/%0A%C3%A9", Status: http.StatusOK, Endpoint: e.addr().String()},
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example"+path+"?q=%22a%22", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Referer", "https://a.example/\"x\"")
		q.Header.Set("User-Agent", "tester/1")
		if _, _, err := ask(c, q); err != nil {
			t.Fatal(err)
		}
		var got *model.Access
		select {
		case got = <-told:
		case <-time.After(time.Minute):
			t.Fatalf("%s isn't told", path)
		}
		if got.Path != want.Path || got.Status != want.Status || got.Endpoint != want.Endpoint || got.Method != http.MethodGet || got.Query != "q=%22a%22" || got.Referer != "https://a.example/\"x\"" || got.UserAgent != "tester/1" || got.Host != "shop.example" ||
			got.Socket != "ns/gw:80" || got.Client.String() != "127.0.0.1" || got.Protocol != "HTTP/1.1" || got.Took < 0 || time.Since(got.Time) > time.Minute {
			t.Errorf("%s is told as %+v", path, *got)
		}
	}
	select {
	case a := <-told:
		t.Errorf("told once more: %+v", *a)
	default:
	}
}
