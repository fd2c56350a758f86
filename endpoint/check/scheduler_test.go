package check

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asked counts questions by endpoint.
type asked struct {
	mu    sync.Mutex
	count map[netip.AddrPort]int
	bad   map[netip.AddrPort]bool
}

func (a *asked) probe(_ context.Context, t Target) (Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[t.Addr]++
	if a.bad[t.Addr] {
		return Result{Outcome: Refused, Reason: "connection refused"}, nil
	}
	return good, nil
}

func addressOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

// TestSchedulerAsksAllInTurn: a thousand endpoints are asked once an interval
// each, one that fails is reported once, and a removed one is left alone.
func TestSchedulerAsksAllInTurn(t *testing.T) {
	a := &asked{count: map[netip.AddrPort]int{}, bad: map[netip.AddrPort]bool{addressOf(7): true}}
	var mu sync.Mutex
	reports := map[int][]Verdict{}
	s := NewScheduler(a.probe, func(key int, v Verdict) {
		mu.Lock()
		defer mu.Unlock()
		reports[key] = append(reports[key], v)
	})
	spec := Spec{Kind: TCP, Interval: 200 * time.Millisecond, Timeout: Shortest, Rise: 2, Fall: 3}
	for i := range 1000 {
		s.Set(i, Target{Addr: addressOf(i), Spec: &spec}, Healthy)
	}
	s.Remove(8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	deadline := time.After(20 * time.Second)
	for least := 0; least < 5; {
		select {
		case <-deadline:
			t.Fatalf("some endpoint was asked %d times only", least)
		case <-time.After(10 * time.Millisecond):
		}
		a.mu.Lock()
		least = 1 << 30
		for i := range 1000 {
			if i != 8 {
				least = min(least, a.count[addressOf(i)])
			}
		}
		a.mu.Unlock()
	}
	cancel()
	<-done
	if n := a.count[addressOf(8)]; n > 0 {
		t.Errorf("a removed endpoint was asked %d times", n)
	}
	if len(reports) != 1 || len(reports[7]) != 1 || reports[7][0].Health != Unhealthy {
		t.Errorf("reported: %v", reports)
	}
	if known := s.Known(); known[Healthy] != 998 || known[Unhealthy] != 1 {
		t.Errorf("known: %v", known)
	}
}

// BenchmarkTCP is what one check of a listening port costs the process that asks;
// the other end is another process's.
func BenchmarkTCP(b *testing.B) { benchmarkStream(b, "tcp", "") }

// BenchmarkHTTP is the same of an HTTP server that is written for this.
func BenchmarkHTTP(b *testing.B) {
	benchmarkStream(b, "http:/", httpAnswer)
}

const httpAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// serveFor in the environment makes TestServe a server that answers with its value.
const serveFor = "FAIRWAY_TEST_SERVE"

// TestServe is the other end of benchmarks.
func TestServe(t *testing.T) {
	answer, asked := os.LookupEnv(serveFor)
	if !asked {
		return
	}
	l := listen(t, "127.0.0.1:0")
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the end of the benchmark
		_ = l.Close()
	}()
	buffer := make([]byte, 1000)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if answer != "" {
			_, _ = c.Read(buffer)
			_, _ = c.Write([]byte(answer))
		}
		_ = c.Close()
	}
}

// BenchmarkTCP10000 is what ten thousand endpoints, each asked every two seconds,
// cost the process that asks, in percent of a core.
func BenchmarkTCP10000(b *testing.B) { benchmarkMany(b, "tcp", "") }

// BenchmarkHTTP10000 is the same of HTTP.
func BenchmarkHTTP10000(b *testing.B) { benchmarkMany(b, "http:/", httpAnswer) }

func benchmarkMany(b *testing.B, text, answer string) {
	target := otherEnd(b, text, answer)
	s := NewScheduler(Probe, func(key int, v Verdict) {
		if v.Health != Healthy {
			b.Errorf("endpoint %d: %+v", key, v)
		}
	})
	for i := range 10_000 {
		s.Set(i, target, Healthy)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	time.Sleep(2 * time.Second) // the first checks are spread
	asked, before, began := s.Asked(Passed), usedCPU(), time.Now()
	for b.Loop() {
		time.Sleep(4 * time.Second) // what is measured
	}
	used, took := usedCPU()-before, time.Since(began)
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%cpu")
	b.ReportMetric(float64(s.Asked(Passed)-asked)/took.Seconds(), "checks/s")
	cancel()
	<-done
}

// usedCPU is what this process has used of CPU time.
func usedCPU() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func benchmarkStream(b *testing.B, text, answer string) {
	target := otherEnd(b, text, answer)
	before := usedCPU()
	for b.Loop() {
		if r, err := Probe(b.Context(), target); err != nil || r.Outcome != Passed {
			b.Fatalf("%+v, %v", r, err)
		}
	}
	b.ReportMetric(float64(usedCPU()-before)/float64(b.N), "cpu-ns/op")
}

// otherEnd starts a process that answers, until the benchmark ends.
func otherEnd(b *testing.B, text, answer string) Target {
	b.Helper()
	server := exec.Command(os.Args[0], "-test.run=^TestServe$")
	server.Env = append(os.Environ(), serveFor+"="+answer)
	stdin, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stdin.Close(); _ = server.Wait() }) // it ends with its input
	at, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	spec, err := Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	return Target{Addr: netip.MustParseAddrPort(strings.TrimSpace(at)), Spec: &spec, Own: true}
}
