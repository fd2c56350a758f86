package link

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"golang.org/x/sys/unix"
)

// TestReceive: frames are taken until the socket is closed. With the lock held, what came is
// either taken or unread.
func TestReceive(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(ends[0]), "in"), os.NewFile(uintptr(ends[1]), "out")
	defer out.Close()
	var lock sync.Mutex
	taken, done := 0, make(chan error, 1)
	inlet := NewInlet(in)
	go func() { done <- inlet.Receive(&lock, func([]byte) { taken++ }) }()
	const frames = 1000
	for sent := 1; sent <= frames; sent++ {
		if _, err := out.Write([]byte("frame")); err != nil {
			t.Fatal(err)
		}
		lock.Lock()
		if taken < sent && !inlet.IsBehind() {
			t.Errorf("%d of %d are taken, and none waits", taken, sent)
		}
		lock.Unlock()
	}
	for late := range wait.Tries(10 * time.Second) {
		lock.Lock()
		now := taken
		lock.Unlock()
		if now == frames {
			break
		}
		if late {
			t.Fatalf("%d of %d are taken", now, frames)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
