package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// output is what a container writes: a file, and when and by which run each part
// of it was written.
type output struct {
	mu      sync.Mutex
	file    *os.File
	size    int64
	written []mark // in order
	runs    []int64
	more    chan struct{} // closed and made anew when there is more, or no more will come
	ended   bool
}

// mark says that the file ended at end at some time.
type mark struct {
	at  time.Time
	end int64
}

// openOutput opens the file of a container's output, or makes it. What another
// container left there stays, and isn't shown.
func openOutput(path string) (*output, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	return &output{file: f, size: info.Size(), more: make(chan struct{})}, nil
}

// begin notes that what comes now is of another run of the container.
func (o *output) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs = append(o.runs, o.size)
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.file.Write(p)
	o.size += int64(n)
	if now, last := time.Now(), len(o.written)-1; last >= 0 && now.Sub(o.written[last].at) < 10*time.Millisecond {
		o.written[last].end = o.size
	} else {
		o.written = append(o.written, mark{now, o.size})
	}
	o.wake()
	return n, err
}

// wake wakes those who wait for more. The lock is held.
func (o *output) wake() {
	close(o.more)
	o.more = make(chan struct{})
}

// Close ends it: no more will come.
func (o *output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.wake()
	return o.file.Close()
}

// run is the part of a run, the last or the one before. Without one before, it is
// an error.
func (o *output) run(previous bool) (from, to int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.runs) - 1
	switch {
	case previous && last < 1:
		return 0, 0, errors.New("previous terminated container not found")
	case previous:
		return o.runs[last-1], o.runs[last], nil
	case last < 0:
		return o.size, o.size, nil
	}
	return o.runs[last], o.size, nil
}

// since is where begins what was written at a time or later.
func (o *output) since(at time.Time) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var before int64
	for _, m := range o.written {
		if !m.at.Before(at) {
			return before
		}
		before = m.end
	}
	return o.size
}

// timeOf is when the byte at an offset was written.
func (o *output) timeOf(offset int64) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.written {
		if offset < m.end {
			return m.at
		}
	}
	return time.Now()
}

// state is how long it is now, and what is closed when that changes.
func (o *output) state() (size int64, ended bool, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size, o.ended, o.more
}

// await waits until it is longer than from, and says how long. If ctx is done, or
// no more comes, that is from.
func (o *output) await(ctx context.Context, from int64) int64 {
	for {
		size, ended, more := o.state()
		if size > from || ended {
			return max(size, from)
		}
		select {
		case <-ctx.Done():
			return from
		case <-more:
		}
	}
}

// reader reads a part of the file, from a descriptor of its own, since logs are
// read after their container has ended too.
func (o *output) reader(from, to int64) (io.ReadCloser, error) {
	f, err := os.Open(o.file.Name())
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, from, to-from), f}, nil
}
