package iptables

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockHeld holds the lock of xtables, as a stuck program would. The tool gives
// up, and its error says why.
func TestLockHeld(t *testing.T) {
	inNamespace(t)
	tool := open(t, Legacy)
	tool.lockWait = "1"
	path := t.TempDir() + "/lock"
	t.Setenv("XTABLES_LOCKFILE", path)
	lock, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	input := []byte("*filter\n:TEST - [0:0]\nCOMMIT\n")
	err = tool.Restore(context.Background(), IPv4, input)
	var failed *RestoreError
	if !errors.As(err, &failed) || !strings.Contains(failed.Answer, "xtables lock") {
		t.Errorf("got %v, want an error about the lock", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tool.Restore(context.Background(), IPv4, input); err != nil {
		t.Errorf("after the lock is free: %v", err)
	}
}
