package lab_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// TestLookedAt: once everybody who looked has gone, the kernel holds what it held before
// anybody did, in every mode. What a connect takes before, meanwhile and after is logged.
func TestLookedAt(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ebpf", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			l := traceIn(t, mode)
			l.connects(200) // what the first ones need is there
			before, took := l.objects(), l.connects(pairedConnects)
			l.look()
			f := follow(t, l.kubeconfig)
			eventually(t, "flows are followed", func() bool {
				l.connects(1)
				return f.has(func(r flowRecord) bool { return r.Service == "default/healthy:http" })
			})
			during := l.connects(pairedConnects)
			if mode != "ebpf" { // where only a connection of trace's own can be followed
				l.killed()
			}
			if err := f.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			after := ""
			eventually(t, "the kernel holds what it held before", func() bool {
				after = l.objects()
				return after == before
			})
			if after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			t.Logf("connects take %v before anybody looked, %v while flows are followed, %v after (the tenth percentile of %d): %d lines of objects",
				took, during, l.connects(pairedConnects), pairedConnects, strings.Count(before, "\n"))
		})
	}
}

const pairedConnects = 1000

// look has each command of diagnosis look once.
func (l *tracing) look() {
	l.Helper()
	for _, command := range []string{"explain svc/healthy", "doctor svc/healthy", "doctor svc/healthy --from pod/" + l.pod, "dump svc/healthy --node node1", "flows", "trace svc/healthy --send --node node1"} {
		if out, stderr, code := fairway(append(strings.Fields(command), "--kubeconfig", l.kubeconfig)...); code != 0 {
			l.Errorf("%s: exit code %d: %s%s", command, code, out, stderr)
		}
	}
}

// objects are what node1's kernel holds: the mode's own objects, all of nf_tables and
// iptables, and what of eBPF the agent has open.
func (l *tracing) objects() string {
	l.Helper()
	socket := filepath.Join(filepath.Dir(l.kubeconfig), "node1", agentlink.SocketName)
	status, err := agentlink.New(socket).Status(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", status.PID))
	if err != nil {
		l.Fatal(err)
	}
	kinds := map[string]int{}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "anon_inode:bpf") {
			kinds[to]++
		}
	}
	out, stderr, code := fairway("dump", "--objects", "--agent-socket", socket)
	if code != 0 {
		l.Fatalf("dump: exit code %d: %s%s", code, out, stderr)
	}
	all := fmt.Sprintf("%v\n%s", kinds, out)
	for _, command := range []string{"nft -s list ruleset", "ip rule", "tc filter show dev eth0 ingress", "cat /proc/sys/net/netfilter/nf_log/2 /proc/sys/net/netfilter/nf_log/10"} {
		var text strings.Builder
		c := exec.Command("sh", "-c", command)
		c.Stdout = &text
		if err := errors.Join(l.node1.Start(c), c.Wait()); err != nil {
			l.Fatalf("%s: %v", command, err)
		}
		all += text.String()
	}
	return all
}

// connects makes connections to the Service one after the other, and returns what a tenth of
// them take at most: on a machine that does other work, the median says more about that.
func (l *tracing) connects(n int) time.Duration {
	l.Helper()
	to := net.JoinHostPort(l.services[0].String(), strconv.Itoa(80))
	took := make([]time.Duration, n)
	if err := l.node1.Do(func() error {
		for i := range took {
			began := time.Now()
			conn, err := net.DialTimeout("tcp", to, waitTimeout)
			if err != nil {
				return err
			}
			took[i] = time.Since(began)
			if err := errors.Join(conn.(*net.TCPConn).SetLinger(0), conn.Close()); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		l.Fatal(err)
	}
	slices.Sort(took)
	return took[n/10]
}
