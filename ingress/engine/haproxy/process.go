package haproxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startTimeout is how long haproxy may take until it serves.
const startTimeout = time.Minute

// process is one haproxy at work.
type process struct {
	*os.Process
	folder  string
	control control
	state   *os.ProcessState // once it has ended
	ended   chan struct{}
	said    *tail
	hidden  bool // its end is expected
	mu      sync.Mutex
}

// launch runs a program with files that are its from number 3 on. These are
// listening sockets, and an [os.File] of one would have it block, here and for every
// other process that has it.
func launch(program, folder string, sockets []int, log *slog.Logger, arguments ...string) (*process, error) {
	p := &process{folder: folder, control: control(filepath.Join(folder, "control")), ended: make(chan struct{}), said: &tail{log: log}}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start haproxy: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		_, _ = read.Close(), write.Close()
		return nil, fmt.Errorf("start haproxy: %w", err)
	}
	files := []uintptr{null.Fd(), write.Fd(), write.Fd()}
	for _, fd := range sockets {
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec(program, append([]string{"haproxy", "-f", filepath.Join(folder, "haproxy.cfg")}, arguments...), &syscall.ProcAttr{
		Env: environment(), Files: files, Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGUSR1},
	})
	_, _ = null.Close(), write.Close() // haproxy has its own
	if err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("start haproxy: %w", err)
	}
	if p.Process, err = os.FindProcess(pid); err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("start haproxy: %w", err)
	}
	go func() {
		_, _ = io.Copy(p.said, read) // until it ends
		_ = read.Close()
		p.state, _ = p.Wait()
		close(p.ended)
	}()
	return p, nil
}

// environment has the C library ask for large pages, where the system leaves that to
// programs: with thousands of backends, much of haproxy's time goes into finding them
// in its memory.
func environment() []string {
	const name = "GLIBC_TUNABLES"
	if _, given := os.LookupEnv(name); given {
		return os.Environ()
	}
	return append(os.Environ(), name+"=glibc.malloc.hugetlb=1")
}

// check has haproxy read its configuration, without serving it.
func check(program, folder string, sockets []int, log *slog.Logger) error {
	p, err := launch(program, folder, sockets, log, "-c")
	if err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(startTimeout):
		p.kill()
	}
	if p.state == nil || !p.state.Success() {
		return fmt.Errorf("haproxy refuses its configuration: %v: %s", p.state, p.said.last())
	}
	return nil
}

// start runs haproxy until it serves.
func start(program, folder string, sockets []int, log *slog.Logger) (*process, error) {
	p, err := launch(program, folder, sockets, log, "-db")
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(startTimeout)
	for {
		if _, err := os.Stat(string(p.control)); err == nil {
			if _, err := p.control.ask("show version"); err == nil {
				return p, nil
			}
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("haproxy ended: %v: %s", p.state, p.said.last())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.kill()
			return nil, fmt.Errorf("haproxy doesn't serve after %s", startTimeout)
		}
	}
}

// leave has haproxy take no connections any more and end when it has none. It
// returns once haproxy has let the sockets go: until then, they are its as much as
// its successor's.
func (p *process) leave(sockets map[string]bool) {
	p.mu.Lock()
	p.hidden = true
	p.mu.Unlock()
	_ = p.Signal(syscall.SIGUSR1) // it may have ended
	for range leaveSteps {
		if !p.has(sockets) {
			return
		}
		time.Sleep(leaveStep)
	}
	p.said.log.Warn("a haproxy that was replaced still takes connections", "pid", p.Pid)
}

// How often, and for how long, a haproxy that leaves is looked at.
const (
	leaveStep  = 2 * time.Millisecond
	leaveSteps = 1000
)

// has reports whether haproxy has one of some sockets, named as in /proc (proc(5), fd).
func (p *process) has(sockets map[string]bool) bool {
	folder := fmt.Sprintf("/proc/%d/fd", p.Pid)
	list, err := os.ReadDir(folder)
	if err != nil {
		return false // it has ended
	}
	for _, f := range list {
		if name, err := os.Readlink(filepath.Join(folder, f.Name())); err == nil && sockets[name] {
			return true
		}
	}
	return false
}

func (p *process) isHidden() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden
}

// kill ends haproxy with all its connections.
func (p *process) kill() {
	p.mu.Lock()
	p.hidden = true
	p.mu.Unlock()
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.said.log.Warn("haproxy could not be ended", "error", err)
	}
	<-p.ended
}

// tail keeps the last lines that haproxy said, and logs them.
type tail struct {
	log *slog.Logger
	mu  sync.Mutex
	all []string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, " stopped (cumulated") {
			t.log.Debug("haproxy's message", "line", line)
			t.all = append(t.all, line)
		}
	}
	if n := len(t.all); n > 20 {
		t.all = t.all[n-20:]
	}
	return len(b), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.all, "; ")
}
