package userspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tuning"
)

// server answers agents, and the relay that comes after.
type server struct {
	config   relayConfig
	relay    *relay
	listener *net.UnixListener
	path     string        // of listener
	exit     chan struct{} // closed when the process shall end
	ended    sync.Once
	asking   sync.Mutex // one request at a time
	// clearUp says that the last relay to end takes away what leads packets to
	// relays.
	clearUp atomic.Bool
	// before holds the relays before this one that still have connections:
	// they are told of changes, to end what the table no longer allows.
	before []*link
}

// serve is a relay's life.
func serve(config relayConfig, ready *os.File) error {
	// The agent's terminal is not ours: Ctrl-C there must not end connections.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	raiseLimit()
	s := &server{config: config, relay: newRelay(config.Scheduler), exit: make(chan struct{})}
	if err := s.take(context.Background()); err != nil {
		return err
	}
	var err error
	if s.before, err = predecessors(context.Background(), config.Socket); err != nil {
		fmt.Fprintf(os.Stderr, "fairway relay: %v\n", err) // these are out of reach; new connections needn't be
	}
	if err := s.open(config.Socket); err != nil {
		return err
	}
	if _, err := io.WriteString(ready, isReady); err != nil {
		return fmt.Errorf("report to the agent: %w", err)
	}
	if err := ready.Close(); err != nil {
		return fmt.Errorf("report to the agent: %w", err)
	}
	<-s.exit
	if s.path == config.Socket {
		return nil // a successor or Remove sees to the file
	}
	err = removeFile(s.path)
	if s.clearUp.Load() {
		err = errors.Join(err, clearUp(context.Background(), config.Socket, nil))
	}
	return err
}

// mostDescriptors is the kernel's bound for any process
// (Documentation/admin-guide/sysctl/fs.rst).
const mostDescriptors = "/proc/sys/fs/nr_open"

// raiseLimit lets this process have as many descriptors as the kernel allows
// any, or at least as many as it is allowed itself: each connection takes two.
func raiseLimit() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	most := limit.Max
	if text, err := os.ReadFile(mostDescriptors); err == nil {
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil {
			most = max(most, n)
		}
	}
	for _, n := range []uint64{most, limit.Max} { // more than Max takes CAP_SYS_RESOURCE
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}) == nil {
			return
		}
	}
}

// open listens for agents.
func (s *server) open(path string) error {
	if err := removeFile(path); err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // a successor has the same name
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("open socket: %w", errors.Join(err, listener.Close()))
	}
	s.listener, s.path = listener, path
	go s.accept(listener)
	return nil
}

func (s *server) stop() { s.ended.Do(func() { close(s.exit) }) }

func (s *server) accept(listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return // closed: a successor has taken over
		}
		go s.talk(newLink(conn))
	}
}

// talk answers one peer until it goes.
func (s *server) talk(l *link) {
	defer func() { discard(l.conn.Close()) }()
	if err := l.encoder.Encode(reply{Build: s.config.Build}); err != nil {
		return
	}
	for {
		var r request
		if err := l.decoder.Decode(&r); err != nil {
			return
		}
		if r.Op == opHandover {
			if err := s.handOver(l); err != nil {
				fmt.Fprintf(os.Stderr, "fairway relay: hand over: %v\n", err)
			}
			return
		}
		if r.Op == opWatch {
			s.stream(l)
			return
		}
		answer := s.do(r)
		if err := l.encoder.Encode(answer); err != nil {
			return
		}
		if r.Op == opExit {
			s.stop()
			select {} // the connection ends with the process
		}
	}
}

func (s *server) do(r request) reply {
	if r.Op == opCounts { // waits for nobody
		return reply{Counts: s.relay.traffic.counts()}
	}
	if r.Op == opFlows {
		return reply{Events: s.relay.openFlows()}
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	var answer reply
	switch r.Op {
	case opApply:
		if r.Delta == nil {
			return reply{Err: "apply: no delta"}
		}
		s.relay.transparent.Store(r.Transparent)
		answer.Unopened = s.relay.apply(r.Delta)
		s.forwardToPredecessors(r)
		if r.Delta.Anew {
			go forgetDecoding()
		}
	case opStatus:
		answer.Delta, answer.Open, answer.Flows = s.relay.current().Delta(nil), s.relay.openKeys(), s.relay.flows.count()
		answer.Transparent = s.relay.transparent.Load()
	case opRetire:
		s.forwardToPredecessors(r)
		if err := s.retire(); err != nil {
			answer.Err = err.Error()
		}
	case opExit:
		s.relay.exit()
	default:
		answer.Err = fmt.Sprintf("unknown request %q", r.Op)
	}
	return answer
}

// forgetDecoding follows a whole table. What taking it in needed is more than the
// relay itself, and so is what the first brought along: the start of a program of
// which the relay is a small part.
func forgetDecoding() {
	if err := tuning.ForgetStart(); err != nil {
		fmt.Fprintf(os.Stderr, "fairway relay: memory used by the start was not released: %v\n", err)
	}
}

// predecessorTimeout is how long all relays before this one may take to answer.
const predecessorTimeout = 10 * time.Second

// forwardToPredecessors passes a change on to relays that still have connections.
func (s *server) forwardToPredecessors(r request) {
	// One that is stuck is given up: the others, and new connections, don't wait for it.
	ctx, cancel := context.WithTimeout(context.Background(), predecessorTimeout)
	defer cancel()
	alive := s.before[:0]
	for _, l := range s.before {
		if _, err := l.ask(ctx, r); err != nil && errors.Is(err, errBroken) {
			discard(l.conn.Close()) // its last connection has ended, and so has it
			continue
		}
		alive = append(alive, l)
	}
	s.before = alive
}
