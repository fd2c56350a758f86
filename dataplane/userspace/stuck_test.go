package userspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestStuckRelay stops the relay's process. Nobody waits for it for longer than he has
// time, and when it goes on, so does the plane.
func TestStuckRelay(t *testing.T) {
	p := newPlane(t, t.TempDir())
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a")))})
	apply(t, p, table)
	pid := relayPid(t, p)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that the relay stands still", func() bool { return stopped(t, pid) })
	for name, do := range map[string]func(context.Context) error{
		"Apply": func(ctx context.Context) error {
			_, err := p.Apply(ctx, table, kernel.VerifyAll)
			return err
		},
		"Read": func(ctx context.Context) error {
			_, err := p.Read(ctx, kernel.Query{Objects: true, Frontends: true})
			return err
		},
		"Remove": func(ctx context.Context) error { return p.Remove(ctx, kernel.HandOver) },
	} {
		for kind, begin := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 200*time.Millisecond)
			},
			"cancelled": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(200*time.Millisecond, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := begin()
			if err := do(ctx); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			cancel()
		}
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	apply(t, p, table)
}

// stopped reports whether all threads of a process are in state T (proc(5), stat).
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %q, %v", pid, threads, err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return false // it is gone
		}
		_, state, _ := strings.Cut(string(text), ") ")
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
