package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/test/fakeapi"
)

// TestAwayForHours lets an API be away for hours, of a clock that only they take:
// first nobody takes connections, then it has no time, then it has forgotten where
// the watch was, and is slow. What is known stays until it is known to be wrong.
func TestAwayForHours(t *testing.T) {
	// The last of them holds errors apart by the time since the process began, which
	// is long after that clock's.
	all := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = all[:1]
	defer func() { utilruntime.ErrorHandlers = all }()
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.NewServer()
		do := func(line string) {
			t.Helper()
			if _, err := api.Do(line); err != nil {
				t.Fatal(err)
			}
		}
		service := func(name string) {
			do(`apply {"apiVersion":"v1","kind":"Service","metadata":{"namespace":"default","name":"` + name + `"}}`)
		}
		wire := newWire(api)
		client, err := Client(Tune(&rest.Config{Host: "http://foreign", Dial: wire.dial}))
		if err != nil {
			t.Fatal(err)
		}
		h := &history{began: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { // all of it, or there is somebody whom time goes on for
			cancel()
			wire.cut(true)
			wire.close(t)
		}()
		service("kept")
		service("old")
		go Watch(ctx, Source{Client: client.CoreV1().RESTClient(), Resource: "services"}, h.sink())
		time.Sleep(time.Minute)
		h.want(t, "set kept", "set old", "synced")

		wire.cut(true)
		if err := api.Delete("services", "default", "old"); err != nil {
			t.Fatal(err)
		}
		service("new")
		do("expire")
		time.Sleep(6 * time.Hour)
		h.want(t)
		if tries := wire.refusedDials(); tries < 6*60*2 || tries > 6*60*12 {
			t.Errorf("%d tries in six hours: too few to be soon back, or too many", tries)
		}
		do("away on")
		wire.cut(false)
		time.Sleep(time.Hour)
		h.want(t)
		do("gonebystatus on")
		do("page 1")
		do("slow 40000")
		do("away off")
		back := time.Now()
		time.Sleep(30 * time.Second)
		h.want(t) // the list is not complete yet
		time.Sleep(2 * time.Minute)
		h.want(t, "set kept", "set new", "delete old", "synced")
		if took := h.last.Sub(back); took > 2*time.Minute {
			t.Errorf("it took %s to be back", took)
		}
		service("more")
		time.Sleep(time.Second)
		h.want(t, "set more")
	})
}

// history is what a sink was told, and when last.
type history struct {
	began, last time.Time
	mu          sync.Mutex
	told        []string
}

func (h *history) sink() Sink[*corev1.Service] {
	tell := func(what string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.told, h.last = append(h.told, what), time.Now()
	}
	return Sink[*corev1.Service]{
		Set:    func(s *corev1.Service) { tell("set " + s.Name) },
		Delete: func(n types.NamespacedName) { tell("delete " + n.Name) },
		Synced: func() { tell("synced") },
	}
}

// want checks what was told since the last call.
func (h *history) want(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.told, want) {
		t.Fatalf("after %s: the sink was told %q, want %q", time.Since(h.began), h.told, want)
	}
	h.told = nil
}

// wire is a network in memory, to a server.
type wire struct {
	server *http.Server
	opened chan net.Conn
	closed chan struct{}
	ended  chan error

	mu      sync.Mutex
	down    bool
	refused int
	open    []net.Conn
}

func newWire(handler http.Handler) *wire {
	w := &wire{server: &http.Server{Handler: handler}, opened: make(chan net.Conn), closed: make(chan struct{}), ended: make(chan error, 1)}
	go func() { w.ended <- w.server.Serve(w) }()
	return w
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		w.refused++
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	w.open = append(w.open, ours, theirs)
	select {
	case w.opened <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut breaks all connections and refuses more, or takes them again.
func (w *wire) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for _, c := range w.open {
		_ = c.Close() // of a pipe
	}
	w.open = nil
}

func (w *wire) refusedDials() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

func (w *wire) close(t *testing.T) {
	t.Helper()
	if err := w.server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-w.ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// Accept, Close and Addr make it a net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.opened:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { close(w.closed); return nil }
func (w *wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
