package haproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestUnread: a client that reads nothing loses its connection.
func TestUnread(t *testing.T) {
	defer func(before time.Duration) { unreadTimeout = before }(unreadTimeout)
	unreadTimeout = 500 * time.Millisecond
	ended := make(chan struct{}, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				ended <- struct{}{}
				return
			}
		}
	}))
	defer endpoint.Close()
	e := newEngine(t, Options{Drain: time.Second})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		e.Close(ctx)
	}()
	l := &model.Listener{Name: "l"}
	l.SetHosts([]*model.Host{{Rules: []*model.Rule{{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: &model.Action{Backends: []model.Backend{{Pool: "p", Weight: 1}}}}}}})
	p := &model.Pool{Name: "p", Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(endpoint.Listener.Addr().String()), Weight: 1}}}
	if err := e.Apply(&model.Table{
		Sockets: []*model.Socket{{Name: "s", Port: 80, Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{l}}},
		Pools:   map[string]*model.Pool{"p": p},
	}); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", e.Sockets()["s"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}
