package legacytrace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
)

// Client is told of rules that traced packets pass: those of all traces in the network
// namespace.
type Client struct {
	conn   *net.UnixConn
	ns     *netns.NS
	before setting
	ended  bool // the keeper has
}

// openTimeout is how long a keeper has time to begin.
const openTimeout = 5 * time.Second

// keeperStart is how long a keeper is waited for before another one is started, of which the
// first to listen stays.
const keeperStart = time.Second

// Open begins to be told.
func Open() (*Client, error) {
	var last error
	var begins time.Time // when the keeper that was started should listen
	for deadline := time.Now().Add(openTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		c, err := connect()
		switch last = err; {
		case err == nil:
			return c, nil
		case errors.Is(err, unix.ECONNREFUSED) && time.Now().After(begins):
			if err := startKeeper(); err != nil {
				return nil, err
			}
			begins = time.Now().Add(keeperStart)
		case !errors.Is(err, errEnding) && !errors.Is(err, unix.ECONNREFUSED):
			return nil, err
		}
	}
	return nil, fmt.Errorf("the keeper of the logger's setting doesn't begin in %s: %w", openTimeout, last)
}

// errEnding says that a keeper is just about to end.
var errEnding = errors.New("it is about to end")

// connect connects to the namespace's keeper.
func connect() (_ *Client, err error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: address, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()
	if uid, ok := peer(conn); !ok || uid != 0 && uid != os.Geteuid() {
		return nil, fmt.Errorf("another user's process listens at %s in this network namespace", address)
	}
	buf := make([]byte, 4096)
	if err := conn.SetReadDeadline(time.Now().Add(openTimeout)); err != nil {
		return nil, err
	}
	n, err := conn.Read(buf)
	if n == 0 || err != nil {
		return nil, errEnding
	}
	text, ok := strings.CutPrefix(string(buf[:n]), ready)
	if !ok {
		return nil, errors.New(string(buf[:n]))
	}
	ns, err := netns.Current()
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, ns: ns, before: parseSetting(text)}, nil
}

// startKeeper starts one. It is in a session of its own, so that signals to those of
// who traces don't reach it.
func startKeeper() error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{keeperName}
	cmd.Env = []string{env + "=1", "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper of the logger's setting: %w", err)
	}
	go cmd.Wait() //nolint:errcheck // whatever becomes of it, its connection says so
	return nil
}

// Next waits for an event. The error is os.ErrDeadlineExceeded if none comes in time. After any
// other one, no more come.
func (c *Client) Next(deadline time.Time) (Event, error) {
	buf := make([]byte, 4096)
	for {
		if err := c.conn.SetReadDeadline(deadline); err != nil {
			return Event{}, err
		}
		n, err := c.conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return Event{}, os.ErrDeadlineExceeded
		}
		if n == 0 || err != nil {
			c.ended = true
			return Event{}, errors.Join(errors.New("the keeper of the logger's setting has ended: rules of iptables-legacy aren't told any more"), c.restore())
		}
		if e, ok := parse(buf[:n]); ok && !e.fragment() {
			return e, nil
		}
	}
}

// restore puts the setting back in the keeper's place. A keeper that is killed may have its
// address for a moment longer than its connections; another one that lives does the same.
func (c *Client) restore() error {
	return c.ns.Do(func() (err error) {
		for deadline := time.Now().Add(openTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, err = release(c.before); !errors.Is(err, errKept) {
				return err
			}
			another, err := connect()
			if err == nil {
				return errors.Join(another.conn.Close(), another.ns.Close())
			}
		}
		return err
	})
}

// Close ends it. If this was the last client, the setting is as it was when Close returns.
func (c *Client) Close() error {
	var errs []error
	if !c.ended && !c.dismissed() {
		errs = append(errs, c.restore())
	}
	return errors.Join(append(errs, c.conn.Close(), c.ns.Close())...)
}

// dismissed tells the keeper that this client goes, and reports whether the keeper has
// taken care of what that takes.
func (c *Client) dismissed() bool {
	if errors.Join(c.conn.CloseWrite(), c.conn.SetReadDeadline(time.Now().Add(openTimeout))) != nil {
		return false
	}
	for buf := make([]byte, 4096); ; {
		n, err := c.conn.Read(buf)
		if n == 0 || err != nil {
			return false
		}
		if string(buf[:n]) == bye {
			return true
		}
	}
}
