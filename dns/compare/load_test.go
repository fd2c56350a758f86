package compare

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/sync/errgroup"
)

const (
	sockets = 2
	// window is how many questions a socket has under way: one socket's stand
	// for many clients'.
	window = 32
	period = 4 * time.Second
)

// mix is what is asked.
type mix struct {
	name string
	ask  func(i int) (name string, qtype uint16, rcode int)
}

func mixes() []mix {
	return []mix{
		{"address", func(i int) (string, uint16, int) {
			return serviceName(i%services) + ".default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess
		}},
		{"search", func(i int) (string, uint16, int) { // what pods ask for short and outside names
			switch name := serviceName(i % services); i % 4 {
			case 0:
				return name + ".default.svc.cluster.local.", dns.TypeA, dns.RcodeSuccess
			case 1:
				return name + ".default.svc.cluster.local.", dns.TypeAAAA, dns.RcodeSuccess
			case 2:
				return "www" + name + ".example.com.svc.cluster.local.", dns.TypeA, dns.RcodeNameError
			default:
				return "www" + name + ".example.com.cluster.local.", dns.TypeAAAA, dns.RcodeNameError
			}
		}},
	}
}

// question is a packet, and the answer's code.
type question struct {
	packet []byte
	rcode  int
}

func questions(b *testing.B, m mix) []question {
	var list []question
	for i := range services {
		name, qtype, rcode := m.ask(i)
		q := new(dns.Msg).SetQuestion(name, qtype)
		q.SetEdns0(1232, false)
		packet, err := q.Pack()
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, question{packet, rcode})
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// measure asks for a while and reports what that cost the server's process.
func measure(b *testing.B, at netip.AddrPort, pid int, m mix) {
	list := questions(b, m)
	eventually(b, func() error { return ready(at) })
	for b.Loop() {
		if _, err := load(at, list, period/4); err != nil { // warm up
			b.Fatal(err)
		}
		began, before := time.Now(), cpuTime(b, pid)
		answered, err := load(at, list, period)
		if err != nil {
			b.Fatal(err)
		}
		used := cpuTime(b, pid) - before
		b.ReportMetric(float64(answered)/used.Seconds(), "queries/cpu-s")
		b.ReportMetric(float64(answered)/time.Since(began).Seconds(), "queries/s")
		b.ReportMetric(resident(b, pid), "MB")
	}
	b.ReportMetric(0, "ns/op")
}

// ready reports whether the server knows all Services: it finds the last, and
// denies one that isn't there.
func ready(at netip.AddrPort) error {
	for name, rcode := range map[string]int{serviceName(services - 1): dns.RcodeSuccess, "nothing": dns.RcodeNameError} {
		q := new(dns.Msg).SetQuestion(name+".default.svc.cluster.local.", dns.TypeA)
		answer, _, err := (&dns.Client{Timeout: time.Second}).Exchange(q, at.String())
		if err != nil {
			return err
		}
		if answer.Rcode != rcode {
			return fmt.Errorf("the server isn't ready: %v", answer)
		}
	}
	return nil
}

// load keeps a number of questions under way for a period and counts answers.
func load(at netip.AddrPort, list []question, period time.Duration) (int, error) {
	var group errgroup.Group
	var counts [sockets]int
	for i := range sockets {
		group.Go(func() (err error) {
			counts[i], err = loadSocket(at, list, i*len(list)/sockets, period)
			return err
		})
	}
	err := group.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, err
}

func loadSocket(at netip.AddrPort, list []question, next int, period time.Duration) (int, error) {
	conn, err := net.Dial("udp", at.String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	batch := ipv4.NewPacketConn(conn.(*net.UDPConn))
	out, in := make([]ipv4.Message, window), make([]ipv4.Message, window)
	for i := range window {
		out[i].Buffers, in[i].Buffers = [][]byte{make([]byte, 512)}, [][]byte{make([]byte, 1232)}
	}
	answered, free := 0, window
	end := time.Now().Add(period)
	for time.Now().Before(end) {
		for i := range free {
			n := next % len(list)
			packet := append(out[i].Buffers[0][:0], list[n].packet...)
			packet[0], packet[1] = byte(n>>8), byte(n) // the id says which it is
			out[i].Buffers[0] = packet
			next++
		}
		for sent := 0; sent < free; {
			n, err := batch.WriteBatch(out[sent:free], 0)
			if err != nil {
				return 0, fmt.Errorf("ask: %w", err)
			}
			sent += n
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return 0, err
		}
		n, err := batch.ReadBatch(in, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) { // lost ones
			free = window
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("take answers: %w", err)
		}
		for i := range n {
			packet := in[i].Buffers[0][:in[i].N]
			want := list[int(packet[0])<<8|int(packet[1])].rcode
			if len(packet) < 12 || int(packet[3]&15) != want || want == 0 && packet[7]+packet[9] == 0 {
				return 0, fmt.Errorf("wrong answer % x, want code %d", packet, want)
			}
		}
		answered += n
		free = n
	}
	return answered, nil
}
