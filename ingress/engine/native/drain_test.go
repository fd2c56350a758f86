package native

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestGrace: a connection without a request may bring one more when its socket
// is closed, and the answer says that it is the last.
func TestGrace(t *testing.T) {
	e, err := New(Options{Grace: time.Hour, Drain: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l := &model.Listener{Name: "l"}
	table := &model.Table{Sockets: []*model.Socket{{Name: "s", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{l}}}}
	if err := e.Apply(table); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", e.Sockets()["s"].String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	answers := bufio.NewReader(c)
	ask := func() (last bool) {
		t.Helper()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // all was read
		return response.Close
	}
	if ask() {
		t.Error("the first answer is the last")
	}
	s := e.sockets[netip.MustParseAddrPort("127.0.0.1:0")]
	closed := make(chan struct{})
	go func() { defer close(closed); e.Close(context.Background()) }()
	wait.Until(t, time.Minute, "the socket closes", s.closing.Load)
	if !ask() {
		t.Error("the connection goes on")
	}
	<-closed // before the grace is over, since there are no connections
}
