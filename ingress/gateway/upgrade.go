package gateway

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// upgrade starts the program as it is on disk now, with the same arguments. It
// takes over from this process once its first table is complete. If it fails,
// this one goes on.
func (p *process) upgrade() {
	if p.offer.Load() == nil {
		p.log.Error("nothing can take over without a socket for it; see --handover")
		return
	}
	program, err := os.Executable()
	if err != nil {
		p.log.Error("the program's own file was not found", "error", err)
		return
	}
	next := exec.Command(program, os.Args[1:]...)
	next.Stdin, next.Stdout, next.Stderr = os.Stdin, os.Stdout, os.Stderr
	sibling := isService()
	if sibling {
		next.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT}
	}
	if err := next.Start(); err != nil {
		p.log.Error("program could not be restarted; this process continues", "error", err)
		return
	}
	p.log.Info("new process started", "pid", next.Process.Pid)
	p.next = next.Process
	if sibling {
		return // systemd waits for it
	}
	go func() {
		if err := next.Wait(); err != nil {
			p.log.Error("the new process has ended", "error", err)
		}
	}()
}

// endNext has the process that was started to take this one's place end as well, if it
// hasn't done so yet: nobody else knows of it.
func (p *process) endNext() {
	if p.next == nil {
		return
	}
	if err := p.next.Signal(syscall.SIGTERM); err != nil {
		p.log.Debug("the new process could not be told to end", "pid", p.next.Pid, "error", err) // it has ended
	}
}

// awaitNext waits for the end of a process that was told to end: for systemd, a gateway
// has ended with this one.
func (p *process) awaitNext() {
	if !p.toldNext {
		return
	}
	limit := time.Now().Add(p.config.Delay + p.config.Engine.Drain + successorLimit)
	for time.Now().Before(limit) && p.next.Signal(syscall.Signal(0)) == nil {
		time.Sleep(nextPause)
	}
}

// nextPause is between looks at a process that ends.
const nextPause = 20 * time.Millisecond

// isService reports whether systemd has started this process. The next one is to be
// systemd's own child then: for the end of another one's, `systemctl stop` doesn't
// wait, but kills it at once (systemd, service_set_main_pid and unit_kill_context).
func isService() bool { return os.Getenv("NOTIFY_SOCKET") != "" && os.Getppid() == 1 }
