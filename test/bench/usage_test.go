package bench

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMemoryIsCountedOnce: a child that executes a program has memory of its own and
// counts. One that has its parent's, as it has until then, doesn't; a thread stands for
// it here.
func TestMemoryIsCountedOnce(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()

	thread := make(chan int)
	end := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		thread <- unix.Gettid()
		<-end
	}()
	defer close(end)
	own := []string{strconv.Itoa(os.Getpid()), strconv.Itoa(child.Process.Pid)}
	all := append(slices.Clone(own), strconv.Itoa(<-thread))
	if got := withOwnMemory(all); !slices.Equal(got, own) {
		t.Errorf("%v of %v have memory of their own, not %v", got, all, own)
	}
}
