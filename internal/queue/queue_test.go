package queue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRetriesUntilItWorks lets a key fail, and crash, before it succeeds.
func TestRetriesUntilItWorks(t *testing.T) {
	var mu sync.Mutex
	tries := map[string]int{}
	var output bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	finished := make(chan string, 2)
	q := New(slog.New(slog.NewTextHandler(&output, nil)), func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		tries[key]++
		switch {
		case key == "bad" && tries[key] == 1:
			panic("unexpected object")
		case key == "bad" && tries[key] < 6:
			return errors.New("server says no")
		}
		finished <- key
		return nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Run(ctx, 2)
	}()
	q.Add("bad")
	q.Add("good")
	for range 2 {
		select {
		case <-finished:
		case <-time.After(30 * time.Second):
			t.Fatal("keys are not worked on")
		}
	}
	cancel()
	<-done
	if tries["bad"] != 6 || tries["good"] != 1 {
		t.Errorf("tries are %v, want 6 and 1", tries)
	}
	// The first failures are nobody's business.
	if lines := strings.Count(output.String(), "\n"); lines != 2 {
		t.Errorf("five failures are %d lines of log, want 2:\n%s", lines, output.String())
	}
}

// TestStaleIsQuiet retries without a word.
func TestStaleIsQuiet(t *testing.T) {
	var output bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tries := 0
	q := New(slog.New(slog.NewTextHandler(&output, nil)), func(context.Context, int) error {
		if tries++; tries == 6 {
			cancel()
			return nil
		}
		return ErrStale
	})
	q.Add(1)
	q.Run(ctx, 1)
	if output.Len() > 0 {
		t.Errorf("log says %s", output.String())
	}
}
