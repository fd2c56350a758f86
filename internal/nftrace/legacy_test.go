package nftrace

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/legacytrace"
	"github.com/fairway-net/fairway/internal/netns"
)

// logger is the setting of an address family.
func logger(t *testing.T, ns *netns.NS, family int) string {
	t.Helper()
	var text []byte
	in(t, ns, func() (err error) {
		text, err = os.ReadFile("/proc/sys/net/netfilter/nf_log/" + strconv.Itoa(family))
		return err
	})
	return strings.TrimSpace(string(text))
}

// loggers are both settings.
func loggers(t *testing.T, ns *netns.NS) string {
	t.Helper()
	return logger(t, ns, unix.NFPROTO_IPV4) + " " + logger(t, ns, unix.NFPROTO_IPV6)
}

const telling = "nfnetlink_log nfnetlink_log"

// waitFor waits until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	for late := range wait.Tries(10 * time.Second) {
		if so() {
			break
		}
		if late {
			t.Fatalf("not in time: %s", what)
		}
	}
}

const legacyRules = `*nat
:SVC - [0:0]
-A OUTPUT -p tcp --dport 9999 -j SVC
-A SVC -m comment --comment "a: b" -j MARK --set-xmark 0x4000/0x4000
-A SVC -p tcp -j DNAT --to-destination TO
COMMIT
*filter
:FW - [0:0]
-A OUTPUT -p tcp --dport 1 -j ACCEPT
-A OUTPUT -j FW
-A FW -p tcp --dport 9998 -j DROP
COMMIT
`

// TestLegacy: rules of iptables-legacy are told in both families, those behind a
// translation, too, and the setting that this takes is as it was afterwards.
func TestLegacy(t *testing.T) {
	ns := namespace(t)
	before := loggers(t, ns)
	feed(t, ns, strings.ReplaceAll(legacyRules, "TO", "127.0.0.1:9998"), "iptables-legacy-restore")
	feed(t, ns, strings.ReplaceAll(legacyRules, "TO", "[::1]:9998"), "ip6tables-legacy-restore")
	for _, to := range []struct{ at Flow }{{Flow{Proto: 6, Frontend: at4}}, {Flow{Proto: 6, Frontend: at6}}} {
		s := begun(t, ns, true, to.at)
		if s.Missing() != nil {
			t.Fatal(s.Missing())
		}
		dial(t, ns, to.at.Frontend)
		drop := until(t, s, func(e Event) bool { return e.Legacy != nil && e.Chain == "FW" && e.Kind == Rule })
		if drop.Handle != 1 || drop.Legacy.Hook != "output" || drop.Header.Destination.Port() != 9998 {
			t.Errorf("the drop is %+v, %+v, %+v", drop, drop.Legacy, drop.Header)
		}
		in(t, ns, func() error {
			chains, err := ReadChains()
			if err != nil {
				return err
			}
			text, err := chains.Rule(drop)
			if verdict, _ := LegacyVerdict(drop, text); verdict != "drop" || !strings.Contains(text, "--dport 9998 -j DROP") {
				t.Errorf("in words: %q, %q", text, verdict)
			}
			return errors.Join(err, chains.Close())
		})
		if got := loggers(t, ns); got != telling {
			t.Errorf("while it is traced the loggers are %s", got)
		}
	}
	second := begun(t, ns, true, Flow{Proto: 6, Frontend: at4})
	if second.Missing() != nil {
		t.Errorf("a trace beside another: %v", second.Missing())
	}
	if before == telling {
		t.Error("the loggers were set before")
	}
}

// TestLegacyEnds: whatever is killed, the setting is put back: with the trace, and with
// the process that keeps it.
func TestLegacyEnds(t *testing.T) {
	ns := namespace(t)
	feed(t, ns, legacyEmpty, "iptables-legacy-restore")
	before := loggers(t, ns)
	back := func() bool { return loggers(t, ns) == before }
	open := func() *Session {
		var s *Session
		in(t, ns, func() (err error) {
			s, err = Open([]Flow{{Proto: 6, Frontend: at4}}, true)
			return err
		})
		if s.Missing() != nil || loggers(t, ns) != telling {
			t.Fatalf("missing %v, loggers %s", s.Missing(), loggers(t, ns))
		}
		return s
	}
	first, second := open(), open()
	if err := first.Close(); err != nil || loggers(t, ns) != telling {
		t.Errorf("with one of two traces the setting went: %s, %v", loggers(t, ns), err)
	}
	if err := second.Close(); err != nil || !back() {
		t.Errorf("after the last trace: %s, %v", loggers(t, ns), err)
	}

	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holdEnv+"=1")
	if err := ns.Start(holder); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the process traces", func() bool { return loggers(t, ns) == telling })
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	waitFor(t, "the setting of a killed trace", back)

	last := open()
	killKeeper(t, ns)
	waitFor(t, "the setting of a killed keeper", back)
	if err := last.Close(); err != nil {
		t.Error(err)
	}
}

// TestLegacyKilled: where the trace and the keeper are killed in one instant, the setting
// stays, with a mark of what it was: the next trace puts it back at its end, and so does who
// looks for leftovers.
func TestLegacyKilled(t *testing.T) {
	ns := namespace(t)
	feed(t, ns, legacyEmpty, "iptables-legacy-restore")
	before := loggers(t, ns)
	kill := func() {
		t.Helper()
		holder := exec.Command(os.Args[0])
		holder.Env = append(os.Environ(), holdEnv+"=1")
		if err := ns.Start(holder); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the process traces", func() bool { return loggers(t, ns) == telling })
		if err := holder.Process.Signal(unix.SIGSTOP); err != nil { // it sees nothing of the keeper's end
			t.Fatal(err)
		}
		killKeeper(t, ns)
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = holder.Wait() // it was killed
		if got := loggers(t, ns); got != telling {
			t.Fatalf("somebody has put the setting back: %s", got)
		}
	}
	look := func(leftovers func() (string, error)) (was string) {
		t.Helper()
		in(t, ns, func() (err error) {
			was, err = leftovers()
			return err
		})
		return was
	}
	clean := func(after string) {
		t.Helper()
		if got := loggers(t, ns); got != before || look(legacytrace.Leftovers) != "" {
			t.Errorf("after %s the loggers are %s, not %s, and %q is left", after, got, before, look(legacytrace.Leftovers))
		}
	}
	kill()
	waitFor(t, "it is told what the setting was", func() bool { return look(legacytrace.Leftovers) != "" })
	if look(legacytrace.Sweep) == "" {
		t.Error("it isn't told what was put back")
	}
	clean("a sweep")

	kill()
	s := begun(t, ns, true, Flow{Proto: 6, Frontend: at4})
	if was := look(legacytrace.Sweep); was != "" || loggers(t, ns) != telling {
		t.Errorf("a sweep took the setting from a trace: %s, loggers %s", was, loggers(t, ns))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	clean("the next trace")
}

const legacyEmpty = "*filter\nCOMMIT\n"

// killKeeper kills the keeper of a network namespace: the process that has the kernel tell of
// rules of iptables-legacy there (see package legacytrace).
func killKeeper(t *testing.T, ns *netns.NS) {
	t.Helper()
	found, err := exec.Command("pgrep", "-x", "nf_log-keeper").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(found)) {
		number, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		keeperNS, err := netns.OfProcess(number)
		if err != nil {
			continue // it has just ended
		}
		if keeperNS.ID() == ns.ID() {
			if err := unix.Kill(number, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		_ = keeperNS.Close() // it was only compared
	}
}

// TestLegacyTaken: another program, such as ulogd, reads group 0 of nfnetlink_log. Then rules
// of iptables-legacy are missing from the trace, those of nf_tables are in it, and the
// logger setting stays as it is.
func TestLegacyTaken(t *testing.T) {
	ns := namespace(t)
	feed(t, ns, legacyEmpty, "iptables-legacy-restore")
	before := loggers(t, ns)
	other := takeGroup(t, ns)
	defer other.Close() //nolint:errcheck // of a test
	s := begun(t, ns, true, Flow{Proto: 6, Frontend: at4})
	if s.Missing() == nil || !strings.Contains(s.Missing().Error(), "another program reads group 0") || loggers(t, ns) != before {
		t.Errorf("missing %v, loggers %s", s.Missing(), loggers(t, ns))
	}
	dial(t, ns, at4)
	until(t, s, func(e Event) bool { return e.Passed == "postrouting" })
}

// takeGroup binds group 0 of nfnetlink_log, as ulogd does.
func takeGroup(t *testing.T, ns *netns.NS) *netlink.Conn {
	t.Helper()
	var c *netlink.Conn
	in(t, ns, func() (err error) {
		if c, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		bind, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: 1, Data: []byte{1}}})
		if err != nil {
			return err
		}
		_, err = c.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_ULOG<<8 | 1, Flags: netlink.Request | netlink.Acknowledge},
			Data:   append([]byte{0, 0, 0, 0}, bind...),
		})
		return err
	})
	return c
}

// TestLegacyVerdict: what rules do, by their words.
func TestLegacyVerdict(t *testing.T) {
	for rule, want := range map[string]string{
		"-p tcp -j DROP":                       "drop ",
		"-j REJECT --reject-with tcp-reset":    "drop ",
		"-j KUBE-SVC-X":                        "jump KUBE-SVC-X",
		"-g other":                             "goto other",
		"-j MARK --set-xmark 0x4000/0x4000":    "continue ",
		"-p tcp -j DNAT --to-destination 1:2":  "accept ",
		"-m comment --comment nothing":         "continue ",
		"-j RETURN":                            "return ",
		"-m conntrack --ctstate NEW -j ACCEPT": "accept ",
		"-j DOCKER-USER":                       "jump DOCKER-USER",
		"-j CONNMARK --restore-mark":           "continue ",
		"-j TCPMSS --clamp-mss-to-pmtu":        "continue ",
	} {
		verdict, target := LegacyVerdict(Event{Kind: Rule, Handle: 1}, rule)
		if got := verdict + " " + target; got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}
