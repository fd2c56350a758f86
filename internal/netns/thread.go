package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
// the namespace's, too. To be where the process is already takes no right.
func (n *NS) Do(fn func() error) error {
	return onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return fn()
	})
}

// enter has the calling thread be in the namespace.
func (n *NS) enter() error {
	err := vnetns.Set(n.handle)
	if errors.Is(err, fs.ErrPermission) && n.isHere() { // setns(2) takes CAP_SYS_ADMIN even so
		return nil
	}
	if err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n, err)
	}
	return nil
}

// isHere says whether the calling thread is in the namespace.
func (n *NS) isHere() bool {
	here, err := vnetns.GetFromPath(threadPath)
	if err != nil {
		return false
	}
	defer here.Close()
	return here.Equal(n.handle)
}

// Start starts a command inside the namespace, where all its threads and
// children then live.
func (n *NS) Start(cmd *exec.Cmd) error {
	return n.Do(cmd.Start)
}

// StartWith starts a command inside the namespace, where it and its children
// find other files at some paths than everybody else: from each path of the map
// to the file that is there for them. Paths that nobody has are left out.
func (n *NS) StartWith(cmd *exec.Cmd, files map[string]string) error {
	return n.startAlone(cmd, func() error { return Overlay(files) })
}

// StartAs starts a command inside the namespace, as on a host of that name. Before,
// see may change what the command's thread sees of the file system (see Overlay); it
// may be nil.
func (n *NS) StartAs(cmd *exec.Cmd, hostname string, see func() error) error {
	return n.startAlone(cmd, func() error {
		if err := SetHostname(hostname); err != nil || see == nil {
			return err
		}
		return see()
	})
}

// startAlone starts a command from a thread that prepare may change for good.
func (n *NS) startAlone(cmd *exec.Cmd, prepare func() error) error {
	return onLastThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		if err := prepare(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

// onLastThread runs fn on a thread that ends afterwards: it is never unlocked. That
// isn't the process's main thread, which wouldn't end, and which /proc/self shows.
func onLastThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onLastThread(fn) // on another thread, since this one is taken
			return
		}
		done <- fn()
	}()
	return <-done
}

// Overlay has the calling thread, and what it starts, find other files at some
// paths: by mounts that nobody else sees. The thread must be locked for good.
func Overlay(files map[string]string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts from the others: %w", err)
	}
	for path, file := range files {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue // there is nothing to mount it on
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", file, path, err)
		}
	}
	return nil
}

// LongestHostname is how many bytes of a host's name SetHostname sets: the kernel's
// limit less one, as in Kubernetes (__NEW_UTS_LEN).
const LongestHostname = 63

// SetHostname has the calling thread, and what it starts, be on a host of that
// name, as far as it fits. The thread must be locked for good.
func SetHostname(name string) error {
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare the host's name: %w", err)
	}
	if err := unix.Sethostname([]byte(name[:min(len(name), LongestHostname)])); err != nil {
		return fmt.Errorf("set host name %q: %w", name, err)
	}
	return nil
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
		if home.enter() == nil {
			runtime.UnlockOSThread()
		}
	}()
	return <-done
}
