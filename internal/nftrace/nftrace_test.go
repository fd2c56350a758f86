package nftrace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/netnstest"
	"github.com/fairway-net/fairway/test/wait"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/legacytrace"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
)

// holdEnv has this test binary open a session and keep it until it is killed.
const holdEnv = "FAIRWAY_TEST_HOLD_TRACE"

func TestMain(m *testing.M) {
	legacytrace.Main() // returns unless this process keeps a setting for traces
	if os.Getenv(holdEnv) != "" {
		if _, err := Open([]Flow{{Proto: model.TCP, Frontend: at4}}, true); err != nil {
			panic(err)
		}
		fmt.Println("open")
		select {}
	}
	os.Exit(m.Run())
}

var (
	at4 = netip.MustParseAddrPort("127.0.0.1:9999")
	at6 = netip.MustParseAddrPort("[::1]:9999")
)

// namespace makes a network namespace whose loopback interface is up.
func namespace(t *testing.T) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	in(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return ns
}

func in(t *testing.T, ns *netns.NS, fn func() error) {
	t.Helper()
	if err := ns.Do(fn); err != nil {
		t.Fatal(err)
	}
}

// feed has a program read an input in the namespace.
func feed(t *testing.T, ns *netns.NS, input string, command ...string) {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	c.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := errors.Join(ns.Start(c), c.Wait()); err != nil {
		t.Fatalf("%v: %v: %s", command, err, out.String())
	}
}

// dial begins a connection in the namespace, whatever becomes of it.
func dial(t *testing.T, ns *netns.NS, to netip.AddrPort) {
	t.Helper()
	in(t, ns, func() error {
		d := net.Dialer{Timeout: 300 * time.Millisecond}
		if conn, err := d.Dial("tcp", to.String()); err == nil {
			return conn.Close()
		}
		return nil
	})
}

// begun follows the flows in the namespace until the test ends.
func begun(t *testing.T, ns *netns.NS, replies bool, flows ...Flow) *Session {
	t.Helper()
	var s *Session
	in(t, ns, func() (err error) {
		s, err = Open(flows, replies)
		return err
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// until waits for an event that is wanted.
func until(t *testing.T, s *Session, wanted func(Event) bool) Event {
	t.Helper()
	var seen []Event
	for deadline := time.Now().Add(20 * time.Second); ; {
		e, err := s.Next(deadline)
		if err != nil {
			t.Fatalf("%v; seen %+v", err, seen)
		}
		if seen = append(seen, e); wanted(e) {
			return e
		}
	}
}

// TestDropIsNamed: the rule that drops a packet is told, and read in words, in both
// families.
func TestDropIsNamed(t *testing.T) {
	for _, to := range []netip.AddrPort{at4, at6} {
		t.Run(to.String(), func(t *testing.T) {
			ns := namespace(t)
			feed(t, ns, "table inet firewall {\nchain out {\n type filter hook output priority 10; policy accept;\n tcp dport 80 accept\n tcp dport 9999 counter drop comment \"no\"\n}\n}", "nft", "-f", "-")
			s := begun(t, ns, false, Flow{Proto: model.TCP, Frontend: to})
			dial(t, ns, to)
			begins := until(t, s, func(Event) bool { return true })
			if begins.Passed != Begins || begins.Packet != 1 || begins.Header == nil || begins.Header.Destination != to || begins.Header.Source.Addr() != to.Addr() {
				t.Errorf("it begins with %+v, %+v", begins, begins.Header)
			}
			drop := until(t, s, func(e Event) bool { return e.Verdict == "drop" })
			if drop.Packet != 1 || drop.Family != "inet" || drop.Table != "firewall" || drop.Chain != "out" || drop.Kind != Rule {
				t.Errorf("dropped by %+v", drop)
			}
			in(t, ns, func() error {
				chains, err := ReadChains()
				if err != nil {
					return err
				}
				if base, ok := chains.Base(drop); !ok || base != (Base{"output", 10}) {
					t.Errorf("its chain is %+v, %t", base, ok)
				}
				text, err := chains.Rule(drop)
				if want := `meta l4proto tcp dport 9999 drop comment "no"`; text != want {
					t.Errorf("the rule is %q, want %q", text, want)
				}
				return errors.Join(err, chains.Close())
			})
		})
	}
}

// TestIPTables: the rules of iptables-nft are followed, and read in its words.
func TestIPTables(t *testing.T) {
	ns := namespace(t)
	feed(t, ns, "*filter\n:OUTPUT ACCEPT\n:OWN -\n-A OUTPUT -p tcp -j OWN\n-A OWN -d 127.0.0.0/8 -m length --length 0:999 -m comment --comment \"not so\" -j REJECT\nCOMMIT\n", "iptables-nft-restore")
	s := begun(t, ns, false, Flow{Proto: model.TCP, Frontend: at4})
	dial(t, ns, at4)
	jump := until(t, s, func(e Event) bool { return e.Verdict == "jump" })
	drop := until(t, s, func(e Event) bool { return e.Verdict == "drop" })
	if jump.Target != "OWN" || drop.Family != "ip" || drop.Table != "filter" || drop.Chain != "OWN" {
		t.Errorf("jump %+v, drop %+v", jump, drop)
	}
	in(t, ns, func() error {
		chains, err := ReadChains()
		if err != nil {
			return err
		}
		one, err1 := chains.Rule(jump)
		two, err2 := chains.Rule(drop)
		if one != "-p tcp -j OWN" || two != `ip daddr 127.0.0.0/8 -m length ... -m comment --comment "not so" -j REJECT` {
			t.Errorf("rules %q and %q", one, two)
		}
		return errors.Join(err1, err2, chains.Close())
	})
}

// TestAnswersAreFollowed: with conntrack, an answer is known as one.
func TestAnswersAreFollowed(t *testing.T) {
	ns := namespace(t)
	var listener net.Listener
	in(t, ns, func() (err error) {
		listener, err = net.Listen("tcp", at4.String())
		return err
	})
	defer listener.Close() //nolint:errcheck // of a test
	s := begun(t, ns, true, Flow{Proto: model.TCP, Frontend: at4})
	dial(t, ns, at4)
	until(t, s, func(e Event) bool { return e.Passed == "input" && !e.Reply })
	answer := until(t, s, func(e Event) bool { return e.Reply && e.Passed == Begins })
	if answer.Header == nil || answer.Header.Source != at4 || answer.Header.TCPFlags&0x12 != 0x12 {
		t.Errorf("the answer is %+v", answer.Header)
	}
}

// TestPortAlone: a flow of a client's port, told to an agent elsewhere, follows that
// connection and no other.
func TestPortAlone(t *testing.T) {
	ns := namespace(t)
	const port = 40123
	text, err := json.Marshal(Flow{Proto: model.TCP, Client: Any(false, port), Frontend: Any(false, 0)})
	if err != nil {
		t.Fatal(err)
	}
	var told Flow
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	s := begun(t, ns, false, told)
	dial(t, ns, at4)
	in(t, ns, func() error {
		d := net.Dialer{Timeout: 300 * time.Millisecond, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(at4.Addr(), port))}
		if conn, err := d.Dial("tcp", at4.String()); err == nil {
			return conn.Close()
		}
		return nil
	})
	e := until(t, s, func(e Event) bool { return e.Header != nil })
	if e.Header.Source.Port() != port {
		t.Errorf("followed a packet from port %d, want %d", e.Header.Source.Port(), port)
	}
}

// TestSideBySide: two sessions see their own packets, and nothing of each other.
func TestSideBySide(t *testing.T) {
	ns := namespace(t)
	other := netip.AddrPortFrom(at4.Addr(), 8888)
	one, two := begun(t, ns, false, Flow{Proto: model.TCP, Frontend: at4}), begun(t, ns, false, Flow{Proto: model.TCP, Frontend: other})
	dial(t, ns, at4)
	dial(t, ns, other)
	for s, want := range map[*Session]netip.AddrPort{one: at4, two: other} {
		for passed := false; !passed; {
			e := until(t, s, func(Event) bool { return true })
			if e.Header != nil && e.Header.Destination != want || e.Table != s.table.Name {
				t.Errorf("a session for %s sees %+v, %+v", want, e, e.Header)
			}
			passed = e.Passed == "postrouting"
		}
	}
}

// TestNothingStays: a process that is killed leaves no table, and neither does Close.
func TestNothingStays(t *testing.T) {
	ns := namespace(t)
	s := begun(t, ns, true, Flow{Proto: model.TCP, Frontend: at4})
	if n := len(tables(t, ns)); n != 1 {
		t.Fatalf("%d tables with a session open", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left := tables(t, ns); len(left) > 0 {
		t.Errorf("Close leaves %v", left)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), holdEnv+"=yes")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(c); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
		t.Fatalf("the process says %q, error %v", line, err)
	}
	if list := tables(t, ns); len(list) != 1 || !strings.HasPrefix(list[0], TablePrefix) {
		t.Fatalf("tables %v while the process runs", list)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	for late := range wait.Tries(20 * time.Second) {
		if len(tables(t, ns)) <= 0 {
			break
		}
		if late {
			t.Fatalf("a killed process leaves %v", tables(t, ns))
		}
	}
}

func tables(t *testing.T, ns *netns.NS) (names []string) {
	t.Helper()
	in(t, ns, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		list, err := conn.ListTables()
		for _, one := range list {
			names = append(names, one.Name)
		}
		slices.Sort(names)
		return err
	})
	return names
}

// TestComment: what isn't nft's own is no comment, and does no harm.
func TestComment(t *testing.T) {
	for data, want := range map[string]string{
		"": "", "\x00": "", "\x00\x05hi": "", "\x00\x03hi\x00": "hi", "\x07\x01x\x00\x03yo\x00": "yo",
		"kept by others": "", "tv": "",
	} {
		if got := comment([]byte(data)); got != want {
			t.Errorf("comment of %q is %q, want %q", data, got, want)
		}
	}
}
