package userspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"syscall"
	"time"

	flowevent "github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The requests to a relay, one JSON value each over a Unix socket that only
// root can reach.
const (
	opApply    = "apply"    // forward what Delta says
	opStatus   = "status"   // tell what is forwarded
	opCounts   = "counts"   // tell what was counted
	opFlows    = "flows"    // tell of connections under way
	opWatch    = "watch"    // tell of connections that begin and end, until this connection is closed
	opHandover = "handover" // give listeners and UDP clients away, keep connections
	opGoOn     = "go on"    // in a handover: descriptors may come
	opTaken    = "taken"    // in a handover: close yours
	opRetire   = "retire"   // another plane serves: end with the last connection, and clear up
	opExit     = "exit"     // end, and all connections with it
)

type request struct {
	Op          string
	Delta       *model.Delta `json:",omitempty"`
	Transparent bool         `json:",omitempty"` // apply: connections may have their client's address
}

type reply struct {
	Err    string         `json:",omitempty"`
	Build  string         `json:",omitempty"` // of the relay's binary, first on each connection
	Delta  *model.Delta   `json:",omitempty"` // status: the whole table
	Open   []model.Key    `json:",omitempty"` // status: the frontends that have listeners
	Flows  int            `json:",omitempty"` // status: connections and clients under way
	Counts []kernel.Count `json:",omitempty"` // counts
	// flows, and for watch as often as there is something
	Events []flowevent.Event `json:",omitempty"`
	Lost   bool              `json:",omitempty"` // watch: there was more than could be told
	// apply: what can't be listened for, of all of the table
	Unopened []unopened     `json:",omitempty"`
	Given    []handedSocket `json:",omitempty"` // handover: what the next descriptors are
	Memory   []remembered   `json:",omitempty"` // handover: which clients belong where
	// status and handover: connections may have their client's address
	Transparent bool `json:",omitempty"`
}

// link is one end of a connection between an agent and a relay, or two relays.
type link struct {
	conn    *net.UnixConn
	encoder *json.Encoder
	decoder *json.Decoder
}

func newLink(conn *net.UnixConn) *link {
	return &link{conn: conn, encoder: json.NewEncoder(conn), decoder: json.NewDecoder(conn)}
}

// A relay that answers needs far less than these times, also for ten thousand
// listeners on a busy machine. One that takes longer is stuck or stopped, and nobody may
// wait for it for ever.
const (
	greetTimeout  = 10 * time.Second
	answerTimeout = time.Minute
)

// connect reaches the relay behind a socket file; build tells which binary it
// is of. A relay that ends just now resets connections that it has not accepted
// yet. Whether there is one is known when its socket has been closed.
func connect(ctx context.Context, path string) (l *link, build string, err error) {
	for deadline := time.Now().Add(greetTimeout); ; time.Sleep(time.Millisecond) {
		l, build, err = greet(ctx, path)
		if !isEnding(err) || ctx.Err() != nil || time.Now().After(deadline) {
			return l, build, err
		}
	}
}

// isEnding reports whether err says that a relay has closed the connection.
func isEnding(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

func greet(ctx context.Context, path string) (l *link, build string, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, "", fmt.Errorf("reach relay: %w", err)
	}
	l = newLink(conn)
	var hello reply
	if err := l.within(ctx, greetTimeout, func() error { return l.decoder.Decode(&hello) }); err != nil {
		return nil, "", errors.Join(fmt.Errorf("greet relay: %w", err), conn.Close())
	}
	return l, hello.Build, nil
}

// within does something over the connection, until ctx is done or the time is over.
func (l *link) within(ctx context.Context, limit time.Duration, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	interrupt := context.AfterFunc(ctx, func() { discard(l.conn.SetDeadline(time.Unix(1, 0))) })
	err := do()
	if interrupt() || err == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// ask sends a request and waits for its reply, but not for longer than ctx and
// answerTimeout allow. A failure of the connection is an errBroken, after which the link
// is of no use; a failure that the relay tells of is not.
func (l *link) ask(ctx context.Context, r request) (reply, error) {
	var answer reply
	err := l.within(ctx, answerTimeout, func() error {
		if err := l.encoder.Encode(r); err != nil {
			return err
		}
		return l.decoder.Decode(&answer)
	})
	if err != nil {
		return reply{}, fmt.Errorf("%s: %w: %w", r.Op, errBroken, err)
	}
	if answer.Err != "" {
		return answer, errors.New(answer.Err)
	}
	return answer, nil
}

var errBroken = errors.New("the relay is gone or stuck")

// build identifies this binary, as far as Go recorded it.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	id := info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision", "vcs.modified", "-ldflags":
			id += " " + s.Value
		}
	}
	return id
}
