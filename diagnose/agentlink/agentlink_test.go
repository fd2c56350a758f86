package agentlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/model"
)

// fakeAgent tells what it is told to.
type fakeAgent struct {
	version string
	table   *model.Table
	gone    chan struct{} // closed when the reader of flows is
}

func (f fakeAgent) Status() Status      { return Status{Version: f.version, Node: "n1", Mode: "ebpf"} }
func (f fakeAgent) Table() *model.Table { return f.table }
func (f fakeAgent) Decide(keys []model.Key, from explain.Source) explain.View {
	v := explain.View{Node: "n1", Mode: "ebpf"}
	for _, k := range keys {
		v.Decisions = append(v.Decisions, explain.Decision{Frontend: k.String(), Source: from.Addr})
	}
	return v
}

func (f fakeAgent) Flows(ctx context.Context, follow bool, to flow.Listener) error {
	to.Note("sampled")
	to.Event(flow.Event{Kind: flow.Refused, Proto: model.UDP, Client: netip.MustParseAddrPort("[fd00::1]:7"), Reason: f.version})
	if !follow {
		return nil
	}
	<-ctx.Done()
	close(f.gone)
	return nil
}

func (f fakeAgent) Objects(_ context.Context, service string) (*dump.Report, error) {
	if service == "default/nothing" {
		return nil, errors.New("nothing of Service default/nothing is in force here")
	}
	return &dump.Report{Node: "n1", Service: service}, nil
}

func (f fakeAgent) Changes() []Change {
	return []Change{{Service: "default/web", InForce: time.Unix(1, 0)}}
}

func (f fakeAgent) Traffic(_ context.Context, service string) (Traffic, error) {
	if service != "default/web" {
		return Traffic{}, errors.New("nothing is in force yet")
	}
	return Traffic{Connections: 7, Refused: 2, NoEndpoint: 2}, nil
}

func (f fakeAgent) Announced() announce.Report { return announce.Report{Node: "n1", Unfit: "drained"} }

func (f fakeAgent) Host(context.Context) *doctor.Host {
	return &doctor.Host{Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}}
}

func (f fakeAgent) Probe(ctx context.Context, r ProbeRequest) (ProbeAnswer, error) {
	return Probed(ctx, fakeProber{}, r)
}

func (f fakeAgent) Trace(ctx context.Context, _ trace.Request, tell func(trace.Line)) error {
	tell(trace.Line{Began: true})
	tell(trace.Line{Event: &trace.Event{Event: nftrace.Event{Table: "filter", Handle: 7}, Text: "drop"}})
	<-ctx.Done()
	close(f.gone)
	return nil
}

// fakeProber answers with what it was asked.
type fakeProber struct{}

func (fakeProber) Connect(_ context.Context, to netip.AddrPort) string { return "to " + to.String() }
func (fakeProber) ConnectFrom(_ context.Context, from netip.Addr, to netip.AddrPort) string {
	return from.String() + " to " + to.String()
}

func (fakeProber) Echo(_ context.Context, from, to netip.Addr, full bool) string {
	return fmt.Sprint(from, to, full)
}
func (fakeProber) AtLoopback(to netip.AddrPort) netip.AddrPort { return to }
func (fakeProber) Lookup(_ context.Context, from netip.Addr, server netip.AddrPort, network, name string) ([]netip.Addr, error) {
	if from.IsValid() {
		return nil, doctor.ErrNotThere
	}
	if network == "tcp" {
		return nil, errors.New("no such host " + name)
	}
	return []netip.Addr{server.Addr()}, nil
}
func (fakeProber) Resolvers(netip.Addr) []doctor.Resolver {
	return []doctor.Resolver{{Servers: []string{"10.96.0.10"}}}
}

// serve serves until the test ends, or stop is called.
func serve(t *testing.T, path string, agent Agent) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, path, agent) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// version waits until an agent of this version answers.
func version(t *testing.T, path, want string) {
	t.Helper()
	for late := range wait.Tries(time.Minute) {
		s, err := New(path).Status(t.Context())
		if err == nil && s.Version == want {
			return
		}
		if late {
			t.Fatalf("version %q, error %v; want %q", s.Version, err, want)
		}
	}
}

func TestAskAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", SocketName)
	id := model.PoolID{Name: "default/web:", Proto: model.TCP}
	e := model.NewTable().Edit()
	e.SetPool(&model.Pool{ID: id, Backends: []model.Backend{{Addr: netip.MustParseAddr("10.244.1.2"), Port: 80, Weight: 1}}})
	key := model.Key{Addr: netip.MustParseAddr("fd00:96::1"), Port: 80, Proto: model.UDP}
	e.SetFrontend(&model.Frontend{Key: key, Name: id.Name, Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}}})
	serve(t, path, fakeAgent{version: "1", table: e.Table()})
	version(t, path, "1")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	table, err := New(path).Table(t.Context())
	if err != nil || table.String() != e.Table().String() {
		t.Errorf("table %s, error %v", table, err)
	}
	view, err := New(path).Decide(t.Context(), []model.Key{key}, explain.Source{Kind: "address", Addr: netip.MustParseAddr("fd00::1")})
	if err != nil || len(view.Decisions) != 1 || view.Decisions[0].Frontend != "[fd00:96::1]:80/udp" || view.Decisions[0].Source.String() != "fd00::1" {
		t.Errorf("view %+v, error %v", view, err)
	}
	err = New(path).ask(t.Context(), http.MethodGet, "/v9/new", nil, new(any))
	if err == nil || !strings.Contains(err.Error(), "has no /v9/new (it is version 1)") {
		t.Errorf("an agent that lacks what is asked for: %v", err)
	}
	err = New(path).ask(t.Context(), http.MethodPost, decidePath, map[string]any{"keys": []string{"10.96.0.1"}}, new(any))
	if err == nil || !strings.Contains(err.Error(), "keys: ") {
		t.Errorf("bad input: %v", err)
	}
}

// TestNewestAgentAnswers: also while the one before it still runs, or after it was
// killed. Who ends takes away its own socket alone.
func TestNewestAgentAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), SocketName)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false) // as if it was killed
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	if found := Find(t.Context(), path); len(found) != 1 || found[0].Err == nil || Of(found, "n1") != nil {
		t.Errorf("a socket without an agent: %+v", found)
	}
	stopOld := serve(t, path, fakeAgent{version: "old"})
	version(t, path, "old")
	stopNew := serve(t, path, fakeAgent{version: "new"})
	version(t, path, "new")
	stopOld()
	version(t, path, "new")
	if found := Find(t.Context(), filepath.Dir(path)+"/*.sock"); Of(found, "n1") == nil {
		t.Errorf("not found: %+v", found)
	}
	stopNew()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestOtherUsersAreRefused: also if somebody opens the socket's rights.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	a, b, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // of a pair
	defer b.Close() //nolint:errcheck // of a pair
	if !permitted(a) {
		t.Error("root is refused")
	}
	if permitted(nil) {
		t.Error("nobody is let in")
	}
}

func socketPair() (net.Conn, net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(file); err != nil {
			return nil, nil, err
		}
		if err := file.Close(); err != nil {
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}

// TestFlows: what an agent tells arrives, and it learns when nobody reads any more.
func TestFlows(t *testing.T) {
	path := filepath.Join(t.TempDir(), SocketName)
	gone := make(chan struct{})
	serve(t, path, fakeAgent{version: "1", gone: gone})
	version(t, path, "1")
	for _, follow := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		notes, events := []string{}, []flow.Event{}
		err := New(path).Flows(ctx, follow, flow.Listener{
			Note: func(text string) { notes = append(notes, text) },
			Event: func(e flow.Event) {
				if events = append(events, e); follow {
					stop()
				}
			},
		})
		stop()
		if err != nil || len(notes) != 1 || notes[0] != "sampled" || len(events) != 1 || events[0].Kind != flow.Refused || events[0].Client.String() != "[fd00::1]:7" || events[0].Proto != model.UDP || events[0].Reason != "1" {
			t.Errorf("follow %t: notes %q, events %+v, error %v", follow, notes, events, err)
		}
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the agent goes on although nobody reads")
	}
}
