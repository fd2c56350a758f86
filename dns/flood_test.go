package dns

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// everything is an upstream that knows every name.
type everything struct{}

func (everything) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	answer := new(dns.Msg).SetReply(m)
	answer.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 600}, A: net.IPv4(192, 0, 2, 80),
	}}
	if err := w.WriteMsg(answer); err != nil {
		return // the client went away
	}
}

// TestFlood asks for more names, of others and of the cluster, than are to be
// remembered, and checks what is.
func TestFlood(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := &dns.Server{PacketConn: conn, Handler: everything{}}
	ended := make(chan error, 1)
	go func() { ended <- upstream.ActivateAndServe() }()
	index := example()
	at := serve(t, index, conn.LocalAddr().String())
	flood(t, at, 0, 2*CacheCapacity)
	before, goroutines := heap(), runtime.NumGoroutine()
	flood(t, at, 2*CacheCapacity, 4*CacheCapacity)
	if entries := cached(t); entries == 0 || entries > CacheCapacity {
		t.Errorf("%v answers are remembered, want some and at most %d", entries, CacheCapacity)
	}
	// What has been remembered since the first half is no more than that was.
	if after := heap(); after > before+8<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before, after)
	}
	if now := runtime.NumGoroutine(); now > goroutines+100 {
		t.Errorf("%d goroutines, before the second half %d", now, goroutines)
	}
	if err := upstream.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// flood asks for names that nobody has asked for before.
func flood(t *testing.T, at netip.AddrPort, from, to int) {
	t.Helper()
	names := make(chan string)
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			conn, err := dns.Dial("udp", at.String())
			if err != nil {
				t.Error(err)
			}
			client := &dns.Client{Timeout: 30 * time.Second}
			for name := range names {
				if err != nil {
					continue
				}
				_, _, err = client.ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeA), conn)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if conn != nil {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := from; i < to; i++ {
		names <- fmt.Sprintf("flood-%d.example.com.", i)
		names <- fmt.Sprintf("flood-%d.default.svc.cluster.local.", i)
	}
	close(names)
	group.Wait()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what pools have is gone after two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cached is how many answers CoreDNS' cache holds, as it says itself.
func cached(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() == "coredns_cache_entries" {
			for _, m := range f.GetMetric() {
				total += m.GetGauge().GetValue()
			}
		}
	}
	return total
}
