//go:build drain

package lab_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairway-net/fairway/test/wait"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/fault"
)

// TestShutdown: a machine that systemd shuts down hands over what it announces. No new
// connection is refused or unanswered, connections through other nodes go on, and those
// through the machine are reset.
func TestShutdown(t *testing.T) {
	shutDown := pretendSystemd(t)
	c, p := underRouters(t, "shutdown")
	through := strings.Count(command(t, "lab", "exec", "--name", c.Name, "node1", "--", "sh", "-c",
		"conntrack -L -f ipv4 -p tcp --dport 80 --state ESTABLISHED; conntrack -L -f ipv6 -p tcp --dport 80 --state ESTABLISHED"), "src=") / 2
	if through == 0 || through == len(p.conns) {
		t.Fatalf("%d of %d connections are through node1", through, len(p.conns))
	}
	newcomers := keepConnecting(t, c.Name, routedHosts)
	agent := agentOf(t, c, "node1")
	shutDown()
	if err := syscall.Kill(agent, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for late := range wait.Tries(waitTimeout) {
		if syscall.Kill(agent, 0) != nil {
			break
		}
		if late {
			t.Fatal("the agent doesn't end")
		}
	}
	if err := lab.BreakNode(t.Context(), c.Name, "node1", fault.Power); err != nil {
		t.Fatal(err)
	}
	eventuallyWays(t, c.Name, 2)
	count := p.fates()
	newcomers()
	t.Logf("%d connections through node1, of %d: %v", through, len(p.conns), count)
	if count["reset"] != through || count["answered"] != len(p.conns)-through {
		t.Errorf("%d connections were through node1, of %d: %v", through, len(p.conns), count)
	}
}

// pretendSystemd has the processes of this mount namespace take the machine for one that
// systemd runs, and returns what has it shut down.
func pretendSystemd(t *testing.T) (shutDown func()) {
	t.Helper()
	if os.Getenv("FAIRWAY_DRAIN") != "isolated" {
		t.Fatal("needs a mount namespace of its own: `make check NAME=drain`")
	}
	const dir = "/run/systemd"
	script := filepath.Join(t.TempDir(), "systemctl")
	err := errors.Join(
		os.WriteFile(script, []byte("#!/bin/sh\nif [ -e "+dir+"/stopping ]; then echo stopping; else echo running; fi\n"), 0o755),
		os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, ""), os.Mkdir(dir+"/system", 0o755),
		unix.Mount(script, "/usr/bin/systemctl", "", unix.MS_BIND, ""),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount("/usr/bin/systemctl", 0), unix.Unmount(dir, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	return func() {
		if err := os.WriteFile(dir+"/stopping", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
