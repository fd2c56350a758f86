package gateway

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
)

// child is a Gateway's process, seen by its supervisor.
type child struct {
	*separate
	gateway types.NamespacedName
	address string        // of its health and metrics
	settled chan struct{} // closed once it serves or has failed
	once    sync.Once
	ending  chan struct{} // closed when it is told to end

	mu     sync.Mutex
	orders *os.File // nil while it doesn't run
}

// How soon a process that has ended is started again.
const (
	firstPause, longestPause = 20 * time.Millisecond, 10 * time.Second
	longLife                 = 10 * time.Second // after which it is as if for the first time
)

// orderTimeout bounds how long a process may take to read an order.
const orderTimeout = time.Second

// reportTimeout bounds how long a process may take to say how it is.
const reportTimeout = 2 * time.Second

// mostReport bounds what a process says of itself.
const mostReport = 64 << 20

func newChild(s *separate, gateway types.NamespacedName) *child {
	return &child{separate: s, gateway: gateway, address: "@fairway-gateway-" + rand.Text(), settled: make(chan struct{}), ending: make(chan struct{})}
}

// run keeps the process running until it is told to end, or another supervisor's has
// taken its place.
func (c *child) run() {
	pause := firstPause
	for {
		began := time.Now()
		err := c.serve()
		c.settle()
		select {
		case <-c.ending:
			return
		default:
		}
		if c.succeeded() {
			return
		}
		c.restarts.WithLabelValues(c.gateway.String()).Inc()
		c.log.Error("the process of a Gateway ended; starting it again", "gateway", c.gateway, "error", err)
		if time.Since(began) > longLife {
			pause = firstPause
		}
		select {
		case <-c.ending:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

func (c *child) settle() { c.once.Do(func() { close(c.settled) }) }

// serve runs the process once.
func (c *child) serve() error {
	command := c.config.Command(c.gateway)
	report, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.address, Net: "unix"})
	if err != nil {
		return fmt.Errorf("start process: %w", err)
	}
	file, err := report.File()
	_ = report.Close() // the process has it
	if err != nil {
		return fmt.Errorf("start process: %w", err)
	}
	defer func() { _ = file.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start process: %w", err)
	}
	command.Stdin, command.ExtraFiles = read, append([]*os.File{file}, command.ExtraFiles...)
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true // a terminal's signals are the supervisor's
	err = startWithoutPrivileges(command)
	_, _ = read.Close(), file.Close()
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("start process: %w", err)
	}
	c.order(write)
	ended := make(chan struct{})
	go c.watchReady(ended)
	go c.config.followGone(ended, c.gone)
	err = command.Wait()
	close(ended)
	c.order(nil)
	return err
}

// order keeps by what the process is told to end, and tells one that is told already.
func (c *child) order(w *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.orders != nil {
		_ = c.orders.Close() // the process is gone
	}
	c.orders = w
	select {
	case <-c.ending:
		c.send(order{End: true})
	default:
	}
}

// end tells the process to end.
func (c *child) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ending:
	default:
		close(c.ending)
		c.send(order{End: true})
	}
}

// gone tells the process which machines are gone.
func (c *child) gone(machines []compile.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send(order{Gone: machines})
}

// send gives the process an order. One that doesn't read them is on its own from then on, as if
// the supervisor were gone. The mutex is held.
func (c *child) send(o order) {
	if c.orders == nil {
		return
	}
	line, err := json.Marshal(o)
	if err == nil {
		err = c.orders.SetWriteDeadline(time.Now().Add(orderTimeout))
	}
	if err == nil {
		_, err = c.orders.Write(append(line, '\n'))
	}
	if err != nil {
		c.log.Debug("the process of a Gateway could not be told", "gateway", c.gateway, "error", err) // it has ended
		_ = c.orders.Close()
		c.orders = nil
	}
}

// watchReady waits until the process serves.
func (c *child) watchReady(ended <-chan struct{}) {
	for {
		if _, err := c.ask("/readyz"); err == nil {
			c.settle()
			return
		}
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ask gets a page of the process's health and metrics.
func (c *child) ask(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.address)
	}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway"+path, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Accept", string(protobuf)) // of metrics
	answer, err := transport.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer %s", answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostReport+1))
	if len(text) > mostReport {
		return nil, fmt.Errorf("the answer is longer than %d bytes", mostReport)
	}
	return text, err
}

// startWithoutPrivileges starts a process that no program which it runs gives more
// rights than it has.
func startWithoutPrivileges(command *exec.Cmd) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, for it can't undo this
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			result <- fmt.Errorf("forgo new privileges: %w", err)
			return
		}
		result <- command.Start()
	}()
	return <-result
}
