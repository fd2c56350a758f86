//go:build !agentonly

package cmd

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/test/netnstest"
)

// asFairway has the test's program be fairway.
const asFairway = "FAIRWAY_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asFairway) != "" {
		os.Exit(Main())
	}
	if name := os.Getenv(asProcess); name != "" {
		serveName(name)
	}
	os.Exit(m.Run())
}

// output is what a process has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestUpIsCalm: on a healthy machine the first start says five things, and warns
// of nothing; also where others may join.
func TestUpIsCalm(t *testing.T) {
	t.Run("alone", func(t *testing.T) { t.Parallel(); upIsCalm(t, "https://127.0.0.1:") })
	t.Run("for others", func(t *testing.T) {
		t.Parallel()
		out := upIsCalm(t, "https://192.0.2.1:", "--bind-address", "0.0.0.0", "--advertise-address", "192.0.2.1")
		if !strings.Contains(out, "; to join other machines: fairway token create") {
			t.Errorf("how to join isn't said:\n%s", out)
		}
	})
}

// upIsCalm starts `up` with some flags besides and returns what it prints.
func upIsCalm(t *testing.T, url string, flags ...string) string {
	t.Helper()
	ns := netnstest.New(t)
	dir := t.TempDir()
	up := exec.Command(os.Args[0], append([]string{"up", "--data-dir", filepath.Join(dir, "data"), "--state-dir", filepath.Join(dir, "state"), "--secure-port", "0"}, flags...)...)
	up.Env = append(os.Environ(), asFairway+"=1")
	var out, log output
	up.Stdout, up.Stderr = &out, &log
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		address := &netlink.Addr{IPNet: netlink.NewIPNet(net.IPv4(192, 0, 2, 1))}
		return errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, address), up.Start())
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	deadline := time.After(2 * time.Minute)
	for last := "To stop: "; !strings.Contains(out.String(), last); {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s%s", err, out.String(), log.String())
		case <-deadline:
			t.Fatalf("no line %q:\n%s%s", last, out.String(), log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	begin := []string{"API server ready at " + url, "Mode ", "2 Services are in force", "Try: ", "To stop: "}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		if i >= len(begin) || !strings.HasPrefix(line, begin[i]) {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
	// A namespace has no upstream DNS, and a busy machine is late: not so these.
	for _, alarm := range []string{"no Node object", "InvalidEndpoint", "waiting for the key", "metallb-system"} {
		if strings.Contains(log.String(), alarm) {
			t.Errorf("the log isn't calm:\n%s", log.String())
		}
	}
	if err := up.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil || !strings.Contains(out.String(), "Stopping: ") {
			t.Errorf("after Ctrl-C: %v\n%s", err, out.String())
		}
	case <-deadline:
		t.Errorf("it doesn't end:\n%s", out.String())
	}
	return out.String()
}
