//go:build vm

package vm

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFallsBack: where one way to run the machine doesn't work, the next is
// taken, and the reason said.
func TestFallsBack(t *testing.T) {
	if os.Getenv(SkipEnv) == "1" || Inside() {
		t.Skipf("NOT TESTED: %s=1 forbids the virtual machine", SkipEnv)
	}
	cache, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel(cache, "")
	if err != nil {
		t.Fatal(err)
	}
	baseFile, err := base(cache, k)
	if err != nil {
		t.Fatal(err)
	}
	broken := accelerator{"broken", []string{"-accel", "nonsense"}, time.Minute}
	m, err := startAny([]accelerator{broken, emulation}, "", t.TempDir(), k, baseFile, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(m.Accel, "tcg: broken: ") || !strings.Contains(m.Accel, "nonsense") {
		t.Errorf("it runs by %q", m.Accel)
	}
}

// TestFrozen: a machine that stops is killed, and what ran in it is told apart from
// what fails.
func TestFrozen(t *testing.T) {
	if Inside() {
		t.Log("here")
		time.Sleep(time.Hour) // until it is ended
	}
	if os.Getenv(SkipEnv) == "1" {
		t.Skipf("NOT TESTED: %s=1 forbids the virtual machine", SkipEnv)
	}
	sleep := Command{Args: []string{"-test.v", "-test.run=^TestFrozen$"}}
	for name, test := range map[string]struct {
		timeout time.Duration
		stop    bool // the machine itself
	}{
		"machine":        {stop: true},
		"silent command": {timeout: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := Start(Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			if test.stop {
				if err := m.process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				go m.watch(2 * time.Second)
			}
			c := sleep
			c.Silence = test.timeout
			_, err = m.Run(c)
			if !errors.Is(err, ErrFrozen) {
				t.Fatalf("%v, expected %v", err, ErrFrozen)
			}
			if !test.stop && !strings.Contains(err.Error(), "/test -test.v") {
				t.Errorf("doesn't say what ran: %v", err)
			}
		})
	}
}

// TestOnceMore: what ran in a machine that froze runs in another one.
func TestOnceMore(t *testing.T) {
	if !Inside() {
		m, err := sharedMachine("bullseye")
		if err != nil {
			t.Fatal(err)
		}
		m.giveUp()
	}
	ran := false
	On(t, "bullseye", func(*testing.T) { ran = true })
	if Inside() && !ran {
		t.Error("did not run")
	}
}
