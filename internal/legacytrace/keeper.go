package legacytrace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// env tells a program that calls Main to be a keeper.
const env = "FAIRWAY_NF_LOG_KEEPER"

// keeperName is what the keeper's process is called. It isn't fairway's name: who kills all
// that is called so doesn't kill what puts the setting back.
const keeperName = "nf_log-keeper"

// address is where the keeper of a network namespace listens: such sockets are the
// namespace's, and go with their process.
const address = "@nf_log-keeper"

// ready begins the first message of a keeper; what the setting was follows.
const ready = "ready "

// bye is its last message to a client that goes.
const bye = "bye"

// firstTimeout is how long a keeper waits for somebody to keep the setting for.
const firstTimeout = 5 * time.Second

// Main is a keeper, and never returns, if this process was started as one; else it does
// nothing. A program that uses Open begins with it.
func Main() {
	if os.Getenv(env) == "" {
		return
	}
	if err := keep(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keeper keeps the setting for those who are connected.
type keeper struct {
	listener *net.UnixListener
	group    *netlink.Conn
	before   setting
	problem  error // why there is nothing to tell

	mu      sync.Mutex
	clients map[*net.UnixConn]bool
	ended   chan struct{} // closed with the last client
}

func keep() error {
	_ = os.WriteFile("/proc/self/comm", []byte(keeperName), 0) // how it is called changes nothing
	signal.Ignore(unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	listener, err := listen()
	if errors.Is(err, unix.EADDRINUSE) {
		return nil // another one was quicker
	}
	if err != nil {
		return fmt.Errorf("listen for traces: %w", err)
	}
	k := &keeper{listener: listener, clients: map[*net.UnixConn]bool{}, ended: make(chan struct{})}
	go k.accept()
	select {
	case <-k.ended:
	case <-asked:
	case <-k.nobody():
	}
	return k.end()
}

// begin has the kernel tell, for the first client: if that is killed before it comes, nothing
// has to be put back.
func (k *keeper) begin() {
	if k.group, k.problem = openGroup(); k.problem != nil {
		return
	}
	if k.before, k.problem = take(); k.problem != nil {
		k.problem = errors.Join(k.problem, k.group.Close())
		k.group = nil
		return
	}
	go k.forward()
}

// nobody says that no client came.
func (k *keeper) nobody() <-chan struct{} {
	none := make(chan struct{})
	time.AfterFunc(firstTimeout, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.clients) == 0 {
			close(none)
		}
	})
	return none
}

// end puts the setting back before anybody is told that this is over.
func (k *keeper) end() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.ended:
	default:
		close(k.ended) // whoever comes now is too late
	}
	var errs []error
	if restored := k.before.restore(); restored != nil {
		errs = append(errs, restored) // the mark stays
	} else if len(k.before) > 0 {
		errs = append(errs, unmark())
	}
	if k.group != nil {
		errs = append(errs, k.group.Close())
	}
	errs = append(errs, k.listener.Close()) // now another keeper may begin
	for c := range k.clients {
		dismiss(c)
	}
	return errors.Join(errs...)
}

func (k *keeper) accept() {
	for begin := sync.OnceFunc(k.begin); ; {
		c, err := k.listener.AcceptUnix()
		if err != nil {
			return // it is over
		}
		if !mayAsk(c) {
			_ = c.Close() // a stranger
			continue
		}
		k.mu.Lock()
		select {
		case <-k.ended:
			_ = c.Close() // too late: it starts the next keeper
		default:
			begin()
			k.clients[c] = true
			first := ready + k.before.String()
			if k.problem != nil {
				first = k.problem.Error()
			}
			_ = send(c, []byte(first)) // who doesn't read it is noticed to be gone
			go k.attend(c)
		}
		k.mu.Unlock()
	}
}

// mayAsk reports whether the other end is root or the same user.
func mayAsk(c *net.UnixConn) bool {
	uid, ok := peer(c)
	return ok && (uid == 0 || uid == os.Geteuid())
}

// peer is the user of the other end.
func peer(c *net.UnixConn) (uid int, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var credentials *unix.Ucred
	if controlled := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlled != nil || err != nil {
		return 0, false
	}
	return int(credentials.Uid), true
}

// attend waits until the client goes. With the last one this is over.
func (k *keeper) attend(c *net.UnixConn) {
	for buf := make([]byte, 16); ; {
		if n, err := c.Read(buf); n == 0 || err != nil {
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.clients) == 1 && k.clients[c] {
		select {
		case <-k.ended:
		default:
			close(k.ended) // end closes the connection, once all is as it was
		}
		return
	}
	delete(k.clients, c)
	dismiss(c)
}

// dismiss is the end of a connection. The client may be gone already.
func dismiss(c *net.UnixConn) {
	_ = send(c, []byte(bye))
	_ = c.Close()
}

// forward passes on what the kernel tells. A client that doesn't read misses it.
func (k *keeper) forward() {
	for {
		list, err := k.group.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return // it is over
		}
		k.mu.Lock()
		for _, m := range list {
			if uint16(m.Header.Type) != packetMessage {
				continue
			}
			for c := range k.clients {
				_ = send(c, m.Data)
			}
		}
		k.mu.Unlock()
	}
}

// send sends without waiting for room.
func send(c *net.UnixConn, text []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		err = unix.Send(int(fd), text, unix.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
	}), err)
}
