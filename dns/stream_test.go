package dns

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestPipelining sends many questions over one TCP connection before it reads an
// answer (RFC 7766, 6.2.1.1): each gets its own, in whatever order.
func TestPipelining(t *testing.T) {
	index := NewIndex(IndexConfig{Zone: "cluster.local"})
	const services = 50
	for i := range services {
		index.SetService(clusterService(fmt.Sprintf("svc-%d", i), fmt.Sprintf("10.96.1.%d", i+1)))
	}
	index.Synced()
	at := serve(t, index)
	raw, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	conn := &dns.Conn{Conn: raw}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	name := func(id uint16) string { return fmt.Sprintf("svc-%d.default.svc.cluster.local.", int(id)%services) }
	const questions = 500
	sent := make(chan error, 1)
	go func() {
		for id := range uint16(questions) {
			q := new(dns.Msg).SetQuestion(name(id), dns.TypeA)
			q.Id = id
			if err := conn.WriteMsg(q); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	answered := map[uint16]bool{}
	for range questions {
		a, err := conn.ReadMsg()
		if err != nil {
			t.Fatalf("after %d answers: %v", len(answered), err)
		}
		want := fmt.Sprintf("10.96.1.%d", int(a.Id)%services+1)
		if answered[a.Id] || len(a.Answer) != 1 || a.Answer[0].Header().Name != name(a.Id) || a.Answer[0].(*dns.A).A.String() != want {
			t.Fatalf("answer %d: %v", a.Id, a)
		}
		answered[a.Id] = true
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
