// Package linearizability puts servers of the API under a load of writes, and checks
// afterwards that what clients were told can have been: that no acknowledged
// write was lost, no read was stale, and no address was given twice.
package linearizability

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// History is what clients did to a few ConfigMaps, each of which holds a number,
// and what they were told.
type History struct {
	began time.Time
	next  atomic.Int64

	mu         sync.Mutex
	operations []operation
	addresses  map[string]string // of Services, by what was acknowledged
	reads      int
	writes     int
}

// New returns an empty history.
func New() *History { return &History{began: time.Now(), addresses: map[string]string{}} }

// operation is a read or a write of one ConfigMap, as the checker reads it.
type operation struct {
	Client, Key int
	Write       bool
	Value       int  // that was written, or read
	Unanswered  bool // a write that failed: it may have been done
	Call        int64
	Return      int64
}

const (
	numbersOfKeys = 4
	clients       = 6
)

func (h *History) now() int64 { return time.Since(h.began).Nanoseconds() }

// record notes an operation. A write without an answer may take effect at any
// time after it began; a read without one says nothing.
func (h *History) record(op operation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	op.Return = h.now()
	switch {
	case err != nil && !op.Write:
		return
	case err != nil:
		op.Unanswered = true
	case op.Write:
		h.writes++
	default:
		h.reads++
	}
	h.operations = append(h.operations, op)
}

func key(n int) string { return fmt.Sprintf("number-%d", n) }

// step does one operation by a server's API.
func (h *History) step(ctx context.Context, client int, api kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	maps := api.CoreV1().ConfigMaps("default")
	op := operation{Client: client, Key: rand.IntN(numbersOfKeys), Write: rand.IntN(2) == 0, Call: h.now()}
	if !op.Write {
		m, err := maps.Get(ctx, key(op.Key), metav1.GetOptions{})
		if err == nil {
			op.Value, err = strconv.Atoi(m.Data["number"])
		}
		h.record(op, err)
		return err
	}
	op.Value = int(h.next.Add(1))
	_, err := maps.Update(ctx, numberMap(op.Key, op.Value), metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // it was refused: nothing was written
		return nil
	}
	h.record(op, err)
	return err
}

func numberMap(n, value int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: key(n)}, Data: map[string]string{"number": strconv.Itoa(value)}}
}

func nodePortService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// service makes a Service and notes its addresses.
func (h *History) service(ctx context.Context, api kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	svc, err := api.CoreV1().Services("default").Create(ctx, nodePortService(fmt.Sprintf("s-%d", h.next.Add(1))), metav1.CreateOptions{})
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addresses[svc.Name] = fmt.Sprintf("%s %d", svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort)
}

// Load has clients read and write by all servers until the returned function is
// called.
func (h *History) Load(t *testing.T, apis []kubernetes.Interface) (stop func()) {
	t.Helper()
	for n := range numbersOfKeys {
		if _, err := apis[0].CoreV1().ConfigMaps("default").Create(t.Context(), numberMap(n, 0), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for c := range clients {
		working.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				api := apis[(c+i/20)%len(apis)] // each server for a while
				if i%20 == 0 {
					h.service(ctx, api)
				}
				pause := 10 * time.Millisecond
				if h.step(ctx, c, api) != nil {
					pause = 100 * time.Millisecond
				}
				time.Sleep(pause)
			}
		})
	}
	return func() {
		cancel()
		working.Wait()
	}
}

// checker is the program that says whether a history can have been: a module of its own,
// below the root of this one, in one of whose folders tests run.
var checker = filepath.Join("..", "test", "linearizability", "checker")

// check has the checker read the history.
func (h *History) check(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(h.operations)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("go", "run", ".")
	c.Dir, c.Stdin = checker, bytes.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("check the history: %v: %s", err, out)
	}
}

// Check holds what clients were told against what can have been, and against
// what is there in the end.
func (h *History) Check(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	for n := range numbersOfKeys { // what is there in the end
		op := operation{Client: clients, Key: n, Call: h.now()}
		m, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), key(n), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		op.Value, err = strconv.Atoi(m.Data["number"])
		h.record(op, err)
	}
	t.Logf("%d reads, %d writes and %d Services were acknowledged", h.reads, h.writes, len(h.addresses))
	if h.writes == 0 || h.reads == 0 {
		t.Error("nothing was acknowledged")
	}
	h.check(t)
	list, err := api.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	var taken []string
	for _, svc := range list.Items {
		if svc.Spec.Ports[0].NodePort == 0 {
			continue
		}
		address, port := svc.Spec.ClusterIP, strconv.Itoa(int(svc.Spec.Ports[0].NodePort))
		stored[svc.Name] = address + " " + port
		if slices.Contains(taken, address) || slices.Contains(taken, port) {
			t.Errorf("%s or node port %s was given twice", address, port)
		}
		taken = append(taken, address, port)
	}
	for name, addresses := range h.addresses {
		if stored[name] != addresses {
			t.Errorf("Service %s was acknowledged with %s, and is stored with %q", name, addresses, stored[name])
		}
	}
}
