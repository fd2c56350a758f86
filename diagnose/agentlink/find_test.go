package agentlink

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSilentAgentsDelayNoAnswer: of twenty agents, three that take connections and say nothing
// are named, and the others' answers don't wait until each of them has had its time.
func TestSilentAgentsDelayNoAnswer(t *testing.T) {
	const all, silent, attempts = 20, 3, 5
	dir := t.TempDir()
	for i := range all {
		path := filepath.Join(dir, fmt.Sprintf("%02d.sock", i))
		if i < silent {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() //nolint:errcheck // of a test
			continue
		}
		serve(t, path, fakeAgent{version: "1"})
		version(t, path, "1")
	}
	for range attempts { // on a busy machine one may take long
		began := time.Now()
		list := Find(t.Context(), filepath.Join(dir, "*.sock"))
		took := time.Since(began)
		late, answered := 0, 0
		for _, f := range list {
			switch {
			case f.Err == nil:
				answered++
			case errors.Is(f.Err, errLate) && strings.Contains(f.Err.Error(), f.At):
				late++
			}
		}
		if late != silent || answered != all-silent {
			t.Fatalf("%d answered, %d are said to be silent: %v", answered, late, Missing(list))
		}
		if took < answerTimeout-grace/2 {
			return
		}
	}
	t.Errorf("silent agents were waited for as long as one has time")
}

// TestNamedSocketIsNotThere: a socket that somebody has named, and that isn't there, is said.
func TestNamedSocketIsNotThere(t *testing.T) {
	dir := t.TempDir()
	absent := filepath.Join(dir, "absent.sock")
	list := FindNamed(t.Context(), absent, filepath.Join(dir, "*", "any.sock"))
	if missing := Missing(list); len(missing) != 1 || !strings.Contains(missing[0], absent) || !strings.Contains(missing[0], "no such file") {
		t.Errorf("it is said: %q", missing)
	}
}
