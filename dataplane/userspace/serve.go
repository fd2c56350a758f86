package userspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// server answers agents, and the relay that comes after.
type server struct {
	relay    *relay
	listener *net.UnixListener
	exit     chan struct{} // closed when the process shall end
	ended    sync.Once
	// forward holds the relays before this one that still have connections:
	// they are told of changes, to end what the table no longer allows.
	forward []*link
	asking  sync.Mutex // one request at a time
}

// serve is a relay's life.
func serve(config relayConfig, ready *os.File) error {
	// The agent's terminal is not ours: Ctrl-C there must not end connections.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	s := &server{relay: newRelay(config.Scheduler), exit: make(chan struct{})}
	if config.Take {
		if err := s.take(config.Socket); err != nil {
			return err
		}
	}
	if err := os.Remove(config.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: config.Socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // a successor has the same name
	if err := os.Chmod(config.Socket, 0o600); err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	s.listener = listener
	if _, err := io.WriteString(ready, "ready"); err != nil {
		return fmt.Errorf("report to the agent: %w", err)
	}
	if err := ready.Close(); err != nil {
		return fmt.Errorf("report to the agent: %w", err)
	}
	go s.accept()
	<-s.exit
	return nil
}

func (s *server) stop() { s.ended.Do(func() { close(s.exit) }) }

func (s *server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return // closed: a successor has taken over
		}
		go s.talk(newLink(conn))
	}
}

// talk answers one peer until it goes.
func (s *server) talk(l *link) {
	defer func() { discard(l.conn.Close()) }()
	if err := l.encoder.Encode(reply{Build: build()}); err != nil {
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
		answer := s.do(r)
		if err := l.encoder.Encode(answer); err != nil {
			return
		}
		if r.Op == opExit {
			s.stop()
			return
		}
	}
}

func (s *server) do(r request) reply {
	s.asking.Lock()
	defer s.asking.Unlock()
	var answer reply
	switch r.Op {
	case opApply:
		if r.Delta == nil {
			return reply{Err: "apply: no delta"}
		}
		if err := s.relay.apply(r.Delta); err != nil {
			answer.Err = err.Error()
		}
		s.tellPredecessors(r)
	case opStatus:
		answer.Delta, answer.Open, answer.Flows = s.relay.current().Delta(nil), s.relay.openKeys(), s.relay.flows.count()
	case opExit:
		s.tellPredecessors(r)
	default:
		answer.Err = fmt.Sprintf("unknown request %q", r.Op)
	}
	return answer
}

// tellPredecessors passes a change on to relays that still have connections.
func (s *server) tellPredecessors(r request) {
	alive := s.forward[:0]
	for _, l := range s.forward {
		if _, err := l.ask(r); err != nil && errors.Is(err, errBroken) {
			discard(l.conn.Close()) // its last connection has ended, and so has it
			continue
		}
		alive = append(alive, l)
	}
	s.forward = alive
}
