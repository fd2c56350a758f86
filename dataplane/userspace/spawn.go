package userspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/model"
)

// relayEnv tells a process of this binary to be a relay, and which.
const relayEnv = "FAIRWAY_USERSPACE_RELAY"

// relayConfig is the value of relayEnv, as JSON.
type relayConfig struct {
	Socket    string
	Scheduler model.Scheduler
	Build     string // of the binary
}

// startTimeout is how long a relay may take to be ready; handing over thousands
// of listeners takes well under a second.
const startTimeout = 20 * time.Second

// connect makes p.relay a relay of this build: the one that runs, a successor
// of it, or a new one.
func (p *Plane) connect(ctx context.Context) error {
	if p.relay != nil {
		return nil
	}
	p.last = nil
	l, running, err := connect(ctx, p.socket)
	switch {
	case err == nil && running == p.build:
		p.adopt(ctx, l)
		return nil
	case err == nil:
		err = l.conn.Close()
	case notRunning(err):
		err = nil
	}
	if err != nil {
		return err
	}
	if err := p.spawn(ctx); err != nil {
		return err
	}
	if l, _, err = connect(ctx, p.socket); err != nil {
		return err
	}
	p.adopt(ctx, l)
	return nil
}

// adopt uses a relay, and reports drift when it dies.
func (p *Plane) adopt(ctx context.Context, l *link) {
	p.relay = l
	if p.options.Drift == nil {
		return
	}
	done := p.done
	watch, _, err := connect(ctx, p.socket)
	if err != nil {
		p.drifted(done)
		return
	}
	go func() { // nothing is ever said on this connection: its end is the relay's
		discard(watch.decoder.Decode(&reply{}))
		discard(watch.conn.Close())
		p.drifted(done)
	}()
}

// spawn starts a relay that outlives this process.
func (p *Plane) spawn(ctx context.Context) error {
	if err := os.MkdirAll(p.options.StateDir, 0o700); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	config, err := json.Marshal(relayConfig{Socket: p.socket, Scheduler: model.Scheduler(p.options.Scheduler), Build: p.build})
	if err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	ready, end, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	defer ready.Close()
	log, err := os.OpenFile(logFile(p.socket), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("start relay: %w", err), end.Close())
	}
	defer log.Close()
	// Not CommandContext: the relay must outlive this process.
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/" // and hold no directory
	cmd.Env = append(os.Environ(), relayEnv+"="+string(config))
	cmd.Stderr, cmd.ExtraFiles = log, []*os.File{end}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	if err := errors.Join(err, end.Close()); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	go func() { discard(cmd.Wait()) }() // so that it leaves no zombie while we live
	return awaitReady(ctx, ready)
}

// isReady is what a relay tells the one who started it.
const isReady = "ready"

// awaitReady reads what a new relay says of itself: isReady, or why
// it failed.
func awaitReady(ctx context.Context, ready *os.File) error {
	deadline := time.Now().Add(startTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := ready.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	said, err := io.ReadAll(ready)
	switch {
	case err != nil:
		return fmt.Errorf("start relay: %w", err)
	case len(said) == 0:
		return errors.New("start relay: it ended without saying why")
	case string(said) != isReady:
		return fmt.Errorf("start relay: %s", said)
	}
	return nil
}

// Main is the whole of a relay's process, if the environment says that this
// process is one; else it returns at once. Every binary that uses this plane
// calls it first of all.
func Main() {
	text := os.Getenv(relayEnv)
	if text == "" {
		return
	}
	ready := os.NewFile(3, "ready")
	var config relayConfig
	err := json.Unmarshal([]byte(text), &config)
	if err == nil {
		err = serve(config, ready)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "fairway relay: %v\n", err)
		fmt.Fprint(ready, err)
		os.Exit(1)
	}
	os.Exit(0)
}
