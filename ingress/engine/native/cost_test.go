package native

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

// BenchmarkRequests is what a request costs that is kept alive at both ends, both
// ends included.
func BenchmarkRequests(b *testing.B) {
	endpoint, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = endpoint.Close() }()
	go func() {
		for {
			c, err := endpoint.Accept()
			if err != nil {
				return
			}
			go answerAll(c)
		}
	}()
	e, err := New(Options{Access: func(*Access) {}})
	if err != nil {
		b.Fatal(err)
	}
	l := &model.Listener{Name: "l"}
	table := &model.Table{Pools: map[string]*model.Pool{}}
	var hosts []*model.Host
	for i := range 5000 {
		name := fmt.Sprintf("h%d.example.com", i)
		table.Pools[name] = &model.Pool{Name: name, Endpoints: []model.Endpoint{{Addr: netip.MustParseAddrPort(endpoint.Addr().String()), Weight: 1}}}
		a := &model.Action{Route: "HTTPRoute ns/" + name, Rule: "0", Backends: []model.Backend{{Pool: name, Weight: 1}}}
		hosts = append(hosts, &model.Host{Hostname: name, Rules: []*model.Rule{{Match: model.Match{Kind: model.PathPrefix, Path: "/"}, Action: a}}})
	}
	l.SetHosts(hosts)
	table.Sockets = []*model.Socket{{Name: "s", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Listeners: []*model.Listener{l}}}
	if err := e.Apply(table); err != nil {
		b.Fatal(err)
	}
	defer e.Close(b.Context())
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", e.Sockets()["s"].String())
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		r := bufio.NewReader(c)
		for i := 0; pb.Next(); i++ {
			if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h%d.example.com\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", i%5000); err != nil {
				b.Error(err)
				return
			}
			response, err := http.ReadResponse(r, nil)
			if err != nil || response.StatusCode != http.StatusOK {
				b.Errorf("answer %v, %v", response, err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close() // all was read
		}
	})
}

func answerAll(c net.Conn) {
	defer func() { _ = c.Close() }()
	answer := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 128\r\n\r\n" + strings.Repeat("x", 128)
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) <= 2 {
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}
