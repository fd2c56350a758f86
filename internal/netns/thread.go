package netns

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// threadPath is the calling thread's namespace. (/proc/self would be the main
// thread's.)
const threadPath = "/proc/thread-self/ns/net"

// Do runs fn inside the namespace, on an operating-system thread of its own.
// Sockets opened and processes started by fn belong to the namespace for good;
// goroutines started by fn don't run in it. Network paths under /proc/sys are
// the namespace's, too.
func (n *NS) Do(fn func() error) error {
	return onThread(func() error {
		if err := vnetns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n, err)
		}
		return fn()
	})
}

// Start starts a command inside the namespace, where all its threads and
// children then live.
func (n *NS) Start(cmd *exec.Cmd) error {
	return n.Do(cmd.Start)
}

// unshare makes a namespace and runs fn in it, before opening it.
func unshare(fn func() error) (*NS, error) {
	var ns *NS
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := fn(); err != nil {
			return err
		}
		var err error
		ns, err = openPath(threadPath)
		return err
	})
	return ns, err
}

// onThread runs fn on a locked thread and puts the thread back into the
// namespace from which it came. A thread for which that fails is never unlocked,
// so that the Go runtime ends it with the goroutine. Neither does it survive a
// panic or runtime.Goexit in fn.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the function inside the network namespace did not return")
		defer func() { done <- err }()
		runtime.LockOSThread()
		home, openErr := openPath(threadPath)
		if openErr != nil {
			err = fmt.Errorf("open the thread's network namespace: %w", openErr)
			return
		}
		defer home.handle.Close()
		err = fn()
		if vnetns.Set(home.handle) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return <-done
}
