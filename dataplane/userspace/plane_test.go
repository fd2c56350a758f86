package userspace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

func newPlane(t *testing.T, stateDir string) *Plane {
	t.Helper()
	p, err := New(kernel.Options{StateDir: stateDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Remove(context.WithoutCancel(t.Context()), kernel.EndConnections); err != nil {
			t.Error(err)
		}
	})
	return p
}

func apply(t *testing.T, p *Plane, table *model.Table) {
	t.Helper()
	if _, err := p.Apply(t.Context(), table, kernel.VerifyNothing); err != nil {
		t.Fatal(err)
	}
}

// relayPid is the process that has the plane's socket.
func relayPid(t *testing.T, p *Plane) int {
	t.Helper()
	l, _, err := connect(t.Context(), p.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { discard(l.conn.Close()) }()
	raw, err := l.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(controlErr, err); err != nil {
		t.Fatal(err)
	}
	return int(peer.Pid)
}

func hasEnded(pid int) func() bool {
	return func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
}

// machine is what Remove must leave as it was.
func machine(t *testing.T, stateDir string) string {
	t.Helper()
	var b strings.Builder
	for _, command := range []string{
		"ip -4 route show table all", "ip -6 route show table all", "ip -4 rule", "ip -6 rule", "nft list ruleset",
	} {
		args := strings.Fields(command)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "does not exist") { // a routing table that never was
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		b.WriteString("# " + command + "\n" + string(out))
	}
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b.WriteString(e.Name() + "\n")
	}
	return b.String()
}

func compare(t *testing.T, p *Plane, table *model.Table) {
	t.Helper()
	want, err := Render(table, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.objects(t.Context())
	if diff := cmp.Diff(text(want), text(got)); err != nil || diff != "" {
		t.Errorf("objects: %v (-want +got)\n%s", err, diff)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	before := machine(t, dir)
	if err := newPlane(t, dir).Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Errorf("without anything there: %v", err)
	}
	p := newPlane(t, dir)
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a"))), "203.0.113.1:80": pool("other", model.TCP, first)})
	apply(t, p, table)
	compare(t, p, table)
	c := mustDial(t, "10.96.0.1:80")
	c.mustSay(t, "a")
	pid := relayPid(t, p)
	if err := newPlane(t, dir).Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Errorf("what another made: %v", err)
	}
	c.mustEnd(t)
	eventually(t, "the relay has ended", hasEnded(pid))
	if diff := cmp.Diff(before, machine(t, dir)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

func TestAgentKilled(t *testing.T) {
	dir := t.TempDir()
	dns, _ := udpBackend(t, "d")
	table := tableOf(map[string]*model.Pool{
		"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a"))), "10.96.0.1:53": pool("dns", model.UDP, dns),
	})
	agent := startAgent(t, dir, table)
	c, u := mustDial(t, "10.96.0.1:80"), dialUDP(t, "10.96.0.1:53")
	c.mustSay(t, "a")
	was := exchange(t, u)
	p := newPlane(t, dir)
	pid := relayPid(t, p)
	if err := agent.Kill(); err != nil {
		t.Fatal(err)
	}
	c.mustSay(t, "a")
	mustDial(t, "10.96.0.1:80").mustSay(t, "a")
	apply(t, p, table)
	compare(t, p, table)
	c.mustSay(t, "a")
	if is := exchange(t, u); is != was {
		t.Errorf("the UDP flow is %q now, was %q", is, was)
	}
	if is := relayPid(t, p); is != pid {
		t.Errorf("the relay is %d now, was %d", is, pid)
	}
}

func startAgent(t *testing.T, dir string, table *model.Table) *os.Process {
	t.Helper()
	delta, err := json.Marshal(table.Delta(nil))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentEnv+"="+dir)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(delta)), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discard(cmd.Process.Kill()); discard(cmd.Wait()) })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "applied\n" {
		t.Fatalf("the agent says %q, %v", line, err)
	}
	return cmd.Process
}

func TestRelayKilled(t *testing.T) {
	drift := make(chan struct{}, 1)
	p := newPlane(t, t.TempDir())
	p.options.Drift = func() {
		select {
		case drift <- struct{}{}:
		default:
		}
	}
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a")))})
	apply(t, p, table)
	pid := relayPid(t, p)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-drift
	if _, err := p.Apply(t.Context(), table, kernel.VerifyAll); err != nil {
		t.Fatal(err)
	}
	mustDial(t, "10.96.0.1:80").mustSay(t, "a")
	compare(t, p, table)
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:30080")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlane(t, t.TempDir())
	web := pool("web", model.TCP, tcpBackend(t, echo("a")))
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": web, "127.0.0.1:30080": web, "203.0.113.1:80": web})
	result, err := p.Apply(t.Context(), table, kernel.VerifyNothing)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.LeftOut) != 1 || result.LeftOut[0].Frontend.Port != 30080 {
		t.Fatalf("left out: %v, want the frontend at the port that is in use", result.LeftOut)
	}
	if why := result.Err().Error(); !strings.Contains(why, "default/web:") || !strings.Contains(why, "127.0.0.1:30080") || !strings.Contains(why, "in use") {
		t.Errorf("left out: %s; want words that name the Service and the address", why)
	}
	mustDial(t, "10.96.0.1:80").mustSay(t, "a")
	mustDial(t, "203.0.113.1:80").mustSay(t, "a")
	// What else changes meanwhile is done, too.
	table = tableOf(map[string]*model.Pool{"10.96.0.1:80": web, "127.0.0.1:30080": web})
	if result, err := p.Apply(t.Context(), table, kernel.VerifyNothing); err != nil || len(result.LeftOut) != 1 {
		t.Errorf("while the port is in use: left out %v, error %v", result.LeftOut, err)
	}
	if routes, err := readRoutes(); err != nil || len(routes) != 1 {
		t.Errorf("routes %v, %v; want the reserved range's only", routes, err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), table, kernel.VerifyAll); err != nil {
		t.Error(err)
	}
	mustDial(t, "127.0.0.1:30080").mustSay(t, "a")
	compare(t, p, table)
}

func TestVerifyRepairs(t *testing.T) {
	drift := make(chan struct{}, 100)
	p := newPlane(t, t.TempDir())
	p.options.Drift = func() { drift <- struct{}{} }
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a")))})
	apply(t, p, table)
	if err := removeReturnPath(); err != nil {
		t.Fatal(err)
	}
	if err := deleteRoute(prefix("10.96.0.0/16")); err != nil {
		t.Fatal(err)
	}
	<-drift
	stale := route(prefix("10.97.0.0/16"))
	if err := netlink.RouteReplace(stale); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), table, kernel.VerifyAll); err != nil {
		t.Fatal(err)
	}
	compare(t, p, table)
	mustDial(t, "10.96.0.1:80").mustSay(t, "a")
}

func TestStateDirTooLong(t *testing.T) {
	_, err := New(kernel.Options{StateDir: filepath.Join("/tmp", strings.Repeat("long", 25))})
	if err == nil || !strings.Contains(err.Error(), "state directory") {
		t.Errorf("error %v; want one that names the state directory", err)
	}
}
