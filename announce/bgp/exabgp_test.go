package bgp

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/announce"
)

// hostileRoutes are what exabgp announces: attributes that no standard allows, and
// some that routers have broken on.
const hostileRoutes = `
    route 198.51.100.1/32 next-hop 127.0.0.1 attribute [ 0x63 0xc0 0x0102030405 ];
    route 198.51.100.2/32 next-hop 127.0.0.1 attribute [ 0xff 0xe0 0x00 ];
    route 198.51.100.3/32 next-hop 127.0.0.1 as-path [ 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 23456 4200000000 ];
    route 198.51.100.4/32 next-hop 127.0.0.1 attribute [ 0x1e 0xc0 0xdeadbeef ];
    route 198.51.100.5/32 next-hop 127.0.0.1 attribute [ 0x28 0xc0 0x0100 ];
    route 198.51.100.6/32 next-hop 127.0.0.1 attribute [ 0x80 0xc0 0x00000001 ];
    route 198.51.100.7/32 next-hop 127.0.0.1 community [ 1:1 2:2 3:3 no-export ] aggregator ( 65000:192.0.2.1 ) atomic-aggregate;
    route 198.51.100.0/24 next-hop 127.0.0.1 split /32;
`

// TestExaBGP: a session with exabgp stands whatever that one announces, and exabgp
// takes in what this side announces.
func TestExaBGP(t *testing.T) {
	program, err := exec.LookPath("exabgp")
	if err != nil {
		t.Skipf("%v: run make deps", err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			x := startExaBGP(t, program, host)
			s := speaker(t)
			s.Routes(routes(map[string]announce.Route{"192.0.2.1/32": {Prepend: 1}, "2001:db8::1/128": {}}))
			peer := announce.Peer{
				Name: "tor", LocalASN: 64512, ASN: 64513, Address: netip.MustParseAddr(host), Port: x.port, BothFamilies: true,
				HoldTime: 9 * time.Second, Connect: 100 * time.Millisecond, RouterID: netip.MustParseAddr("192.0.2.7"), GracefulRestart: true,
			}
			s.Peers([]announce.Peer{peer})
			first := "192.0.2.1/32"
			if host == "::1" {
				first = "2001:db8::1/128"
			}
			x.await(t, s, "\""+first+"\"")
			// Its own routes come meanwhile, alike ones together.
			for late := range wait.Tries(time.Minute) {
				if s.Status()[0].Counts.UpdatesReceived >= 8 {
					break
				}
				if late {
					t.Fatalf("exabgp announces nothing: %+v\n%s", s.Status()[0], x.text())
				}
			}
			if told := fmt.Sprint(s.Status()[0].Prefixes); !strings.Contains(told, first) || host == "::1" && strings.Contains(told, "192.0.2.1") {
				t.Errorf("the router is said to have been told %s", told) // IPv4 has no next hop on loopback
			}
			s.Routes(nil)
			x.await(t, s, "withdraw")
			if st := s.Status()[0]; st.State != Established || st.Counts.OpensSent != 1 {
				t.Errorf("the session did not stand: %+v\n%s", st, x.text())
			}
		})
	}
}

// exabgp is one at work; what it takes in are lines of its output.
type exabgp struct {
	port uint16

	mu    sync.Mutex
	lines []string
}

func startExaBGP(t *testing.T, program, host string) *exabgp {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip("no address ", host)
	}
	x := &exabgp{port: l.Addr().(*net.TCPAddr).AddrPort().Port()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, log := filepath.Join(dir, "exabgp.conf"), filepath.Join(dir, "heard")
	config := fmt.Sprintf(`process heard {
  run /bin/sh -c "cat >%s";
  encoder json;
}
neighbor %s {
  router-id 192.0.2.255;
  local-address %s;
  local-as 64513;
  peer-as 64512;
  passive true;
  hold-time 9;
  capability { asn4; route-refresh; graceful-restart 30; add-path send/receive; operational; nexthop; }
  family { ipv4 unicast; ipv6 unicast; }
  api { processes [ heard ]; receive { parsed; update; } }
  static {%s  }
}
`, log, host, host, hostileRoutes)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, file)
	cmd.Env = append(os.Environ(), "exabgp_tcp_bind="+host, fmt.Sprintf("exabgp_tcp_port=%d", x.port), "exabgp_daemon_user=root", "exabgp_daemon_drop=false",
		"exabgp_log_level=WARNING", "exabgp_api_cli=false")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			x.add(lines.Text())
		}
	}()
	stop := make(chan struct{})
	followed := make(chan struct{})
	go x.follow(log, stop, followed)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has nothing to say any more
		<-done
		_ = cmd.Wait()
		close(stop)
		<-followed
	})
	return x
}

func (x *exabgp) add(line string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lines = append(x.lines, line)
}

// follow takes in what exabgp's process was told, until stop is closed.
func (x *exabgp) follow(file string, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	seen := 0
	for {
		if text, err := os.ReadFile(file); err == nil && len(text) > seen {
			x.add(string(text[seen:]))
			seen = len(text)
		}
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (x *exabgp) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Join(x.lines, "\n")
}

func (x *exabgp) await(t *testing.T, s *Speaker, what string) {
	t.Helper()
	for late := range wait.Tries(time.Minute) {
		if strings.Contains(x.text(), what) {
			break
		}
		if late {
			t.Fatalf("exabgp does not say %s: %+v\n%s", what, s.Status()[0], x.text())
		}
	}
}
