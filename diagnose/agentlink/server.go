package agentlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/model"
)

// Agent is what an agent tells. Calls come from any goroutine.
type Agent interface {
	Status() Status
	// Table is the one in force; nil before there is one.
	Table() *model.Table
	// Decide says what happens to packets to these keys, with the reason for
	// every endpoint.
	Decide(keys []model.Key, from explain.Source) explain.View
	// Flows tells of connections: see flow.Reader.
	Flows(ctx context.Context, follow bool, to flow.Listener) error
	// Objects says what the kernel holds of a Service, or of all for "", compared with
	// what it should hold.
	Objects(ctx context.Context, service string) (*dump.Report, error)
	// Changes are the latest that are in force, the latest last.
	Changes() []Change
	// Traffic is what was counted of a Service ("namespace/name").
	Traffic(ctx context.Context, service string) (Traffic, error)
	// Host are the facts of this machine.
	Host(ctx context.Context) *doctor.Host
	// Announced is what the node says of load balancer addresses.
	Announced() announce.Report
	// Probe sends packets; see Probed.
	Probe(ctx context.Context, r ProbeRequest) (ProbeAnswer, error)
	// Trace follows packets; see trace.Run.
	Trace(ctx context.Context, r trace.Request, tell func(trace.Line)) error
}

// largestRequest bounds what is read of a request.
const largestRequest = 1 << 20

// Serve answers at a socket until ctx is done. A socket that an agent before this
// one left, or still has, is replaced: the newest agent of a node answers.
func Serve(ctx context.Context, path string, agent Agent) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directory of the agent's socket: %w", err)
	}
	// Made beside and renamed, so that it is never there with other rights.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open the agent's socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return fmt.Errorf("open the agent's socket: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	own, err := publish(fresh, path)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: handler(agent), ReadHeaderTimeout: 10 * time.Second}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew && !permitted(c) {
			_ = c.Close() // another user's; nothing is owed
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ends Serve, which says why
	defer stop()
	err = server.Serve(listener)
	if there, statErr := os.Stat(path); statErr == nil && os.SameFile(own, there) {
		err = errors.Join(err, os.Remove(path))
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve the agent's socket: %w", err)
}

// publish gives a socket its rights and its name.
func publish(fresh, path string) (fs.FileInfo, error) {
	if err := os.Chmod(fresh, 0o600); err != nil {
		return nil, fmt.Errorf("restrict the agent's socket: %w", err)
	}
	own, err := os.Stat(fresh)
	if err != nil {
		return nil, fmt.Errorf("open the agent's socket: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return nil, fmt.Errorf("name the agent's socket: %w", err)
	}
	return own, nil
}

// permitted reports whether the other end is root, or who runs this process.
func permitted(c net.Conn) bool {
	peer := peerOf(c)
	return peer != nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
}

// peerOf is the process at the other end.
func peerOf(c net.Conn) *unix.Ucred {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	var peer *unix.Ucred
	if err := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil
	}
	return peer
}

func handler(agent Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, agent.Status()) })
	mux.HandleFunc("GET "+tablePath, func(w http.ResponseWriter, _ *http.Request) {
		table := agent.Table()
		if table == nil {
			table = model.NewTable()
		}
		answer(w, http.StatusOK, table.Delta(nil))
	})
	fail := func(w http.ResponseWriter, code int, text string) {
		answer(w, code, problem{Error: text, Version: agent.Status().Version})
	}
	decide := func(w http.ResponseWriter, asked io.Reader) {
		var request decideRequest
		if err := json.NewDecoder(asked).Decode(&request); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		var keys []model.Key
		for _, text := range request.Keys {
			key, err := parseKey(text)
			if err != nil {
				fail(w, http.StatusBadRequest, "keys: "+err.Error())
				return
			}
			keys = append(keys, key)
		}
		answer(w, http.StatusOK, agent.Decide(keys, request.From))
	}
	mux.HandleFunc("POST "+decidePath, func(w http.ResponseWriter, r *http.Request) {
		decide(w, http.MaxBytesReader(w, r.Body, largestRequest))
	})
	mux.HandleFunc("GET "+decidePath, func(w http.ResponseWriter, r *http.Request) { decide(w, strings.NewReader(r.FormValue("question"))) })
	mux.HandleFunc("GET "+objectsPath, func(w http.ResponseWriter, r *http.Request) {
		report, err := agent.Objects(r.Context(), r.FormValue("service"))
		if err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		answer(w, http.StatusOK, report)
	})
	mux.HandleFunc("GET "+changesPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, agent.Changes()) })
	mux.HandleFunc("GET "+trafficPath, func(w http.ResponseWriter, r *http.Request) {
		traffic, err := agent.Traffic(r.Context(), r.FormValue("service"))
		if err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		answer(w, http.StatusOK, traffic)
	})
	mux.HandleFunc("GET "+hostPath, func(w http.ResponseWriter, r *http.Request) { answer(w, http.StatusOK, agent.Host(r.Context())) })
	mux.HandleFunc("GET "+announcedPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, agent.Announced()) })
	mux.HandleFunc("POST "+probePath, func(w http.ResponseWriter, r *http.Request) {
		var request ProbeRequest
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestRequest)).Decode(&request)
		var result ProbeAnswer
		if err == nil {
			result, err = agent.Probe(r.Context(), request)
		}
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		answer(w, http.StatusOK, result)
	})
	mux.HandleFunc("POST "+tracePath, func(w http.ResponseWriter, r *http.Request) { streamTrace(w, r, agent, fail) })
	mux.HandleFunc("GET "+flowsPath, func(w http.ResponseWriter, r *http.Request) { streamFlows(w, r, agent) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "this agent has no "+r.URL.Path)
	})
	return mux
}

func answer(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(data); err != nil {
		return // the client went away
	}
}
