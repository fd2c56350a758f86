package gateway

import (
	"os"
	"os/exec"
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
		p.log.Error("program not found", "err", err)
		return
	}
	next := exec.Command(program, os.Args[1:]...)
	next.Stdin, next.Stdout, next.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := next.Start(); err != nil {
		p.log.Error("program could not be restarted; this process continues", "err", err)
		return
	}
	p.log.Info("new process started", "pid", next.Process.Pid)
	go func() {
		if err := next.Wait(); err != nil {
			p.log.Error("the new process has ended", "err", err)
		}
	}()
}
