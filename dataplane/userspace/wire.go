package userspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime/debug"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The requests to a relay, one JSON value each over a Unix socket that only
// root can reach.
const (
	opApply    = "apply"    // forward what Delta says
	opStatus   = "status"   // tell what is forwarded
	opCounts   = "counts"   // tell what was counted
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
	Given  []given        `json:",omitempty"` // handover: what the next descriptors are
	Memory []remembered   `json:",omitempty"` // handover: which clients belong where
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

// connect reaches the relay behind a socket file; build tells which binary it
// is of.
func connect(path string) (l *link, build string, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, "", fmt.Errorf("reach relay: %w", err)
	}
	l = newLink(conn)
	var hello reply
	if err := l.decoder.Decode(&hello); err != nil {
		return nil, "", errors.Join(fmt.Errorf("greet relay: %w", err), conn.Close())
	}
	return l, hello.Build, nil
}

// ask sends a request and waits for its reply. A failure of the connection is
// an errBroken; one that the relay tells of is not.
func (l *link) ask(r request) (reply, error) {
	if err := l.encoder.Encode(r); err != nil {
		return reply{}, fmt.Errorf("%s: %w: %w", r.Op, errBroken, err)
	}
	var answer reply
	if err := l.decoder.Decode(&answer); err != nil {
		return reply{}, fmt.Errorf("%s: %w: %w", r.Op, errBroken, err)
	}
	if answer.Err != "" {
		return answer, errors.New(answer.Err)
	}
	return answer, nil
}

var errBroken = errors.New("the relay is gone")

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
