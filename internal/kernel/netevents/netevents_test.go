package netevents

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBurst: when more changes come at once than the socket's buffer holds, the
// loss is told, and so is every change after it.
func TestBurst(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	w, err := Open(unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.socket.SetReceiveBufferSize(4096, true); err != nil {
		t.Fatal(err)
	}
	messages, lost := make(chan uint16, 10000), make(chan struct{}, 100)
	begin := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		<-begin
		ended <- w.Run(ctx, Handler{
			Message: func(m syscall.NetlinkMessage) { messages <- m.Header.Type },
			Lost:    func() { lost <- struct{}{} },
		})
	}()
	addresses(t, "add", 0, 200)
	close(begin)
	select {
	case <-lost:
	case <-time.After(30 * time.Second):
		t.Fatal("the loss wasn't told")
	}
	for len(messages) > 0 {
		<-messages
	}
	addresses(t, "del", 7, 8)
	select {
	case got := <-messages:
		if got != unix.RTM_DELADDR {
			t.Errorf("message of type %d, want %d", got, unix.RTM_DELADDR)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is told after a loss")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// addresses adds or deletes addresses of lo.
func addresses(t *testing.T, verb string, from, to int) {
	t.Helper()
	var batch strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&batch, "address %s 10.9.0.%d/32 dev lo\n", verb, n)
	}
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(batch.String())
	if out, err := ip.CombinedOutput(); err != nil {
		t.Fatalf("ip: %v: %s", err, out)
	}
}
