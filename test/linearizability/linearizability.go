// Package linearizability puts servers of the API under a load of writes, and checks
// afterwards that what clients were told can have been: that no acknowledged
// write was lost, no read was stale, and no address was given twice.
package linearizability

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
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
	operations []porcupine.Operation
	addresses  map[string]string // of Services, by what was acknowledged
	reads      int
	writes     int
}

// New returns an empty history.
func New() *History { return &History{began: time.Now(), addresses: map[string]string{}} }

// operation is a read or a write of one ConfigMap.
type operation struct {
	key   int
	write bool
	value int
}

// unknown is the outcome of a write that failed: it may have been done.
const unknown = -1

// numbers is the model: each ConfigMap holds the number that was written last.
var numbers = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, op := range all {
			key := op.Input.(operation).key
			byKey[key] = append(byKey[key], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byKey {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		if op := input.(operation); op.write {
			return true, op.value
		}
		return output.(int) == state.(int), state
	},
}

const (
	numbersOfKeys = 4
	clients       = 6
)

func (h *History) now() int64 { return time.Since(h.began).Nanoseconds() }

// record notes an operation. A write without an answer may take effect at any
// time after it began; a read without one says nothing.
func (h *History) record(client int, op operation, called int64, value int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	returned := h.now()
	switch {
	case err != nil && !op.write:
		return
	case err != nil:
		value, returned = unknown, math.MaxInt64
	case op.write:
		h.writes++
	default:
		h.reads++
	}
	h.operations = append(h.operations, porcupine.Operation{ClientId: client, Input: op, Call: called, Output: value, Return: returned})
}

func key(n int) string { return fmt.Sprintf("number-%d", n) }

// step does one operation by a server's API.
func (h *History) step(ctx context.Context, client int, api kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	maps := api.CoreV1().ConfigMaps("default")
	op := operation{key: rand.IntN(numbersOfKeys), write: rand.IntN(2) == 0}
	if !op.write {
		called := h.now()
		m, err := maps.Get(ctx, key(op.key), metav1.GetOptions{})
		value := 0
		if err == nil {
			value, err = strconv.Atoi(m.Data["number"])
		}
		h.record(client, op, called, value, err)
		return err
	}
	op.value = int(h.next.Add(1))
	called := h.now()
	_, err := maps.Update(ctx, numberMap(op.key, op.value), metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // it was refused: nothing was written
		return nil
	}
	h.record(client, op, called, op.value, err)
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

// bounded gives writes without an answer an end, so that the history can be
// checked in time. Each value is written once: a write that nobody has read may
// as well not have been done, and one that somebody has read was done by then.
func bounded(all []porcupine.Operation) []porcupine.Operation {
	read := map[int]int64{} // when a value was first read
	for _, op := range all {
		value := op.Output.(int)
		if first, ok := read[value]; !op.Input.(operation).write && (!ok || op.Return < first) {
			read[value] = op.Return
		}
	}
	var out []porcupine.Operation
	for _, op := range all {
		if op.Output.(int) == unknown {
			seen, ok := read[op.Input.(operation).value]
			if !ok {
				continue
			}
			op.Return = max(seen, op.Call)
		}
		out = append(out, op)
	}
	return out
}

// loseOne makes a history one in which the last of what was read was lost.
func loseOne(all []porcupine.Operation) []porcupine.Operation {
	last := &all[len(all)-1]
	last.Output = last.Output.(int) + 1<<30
	return all
}

// Check holds what clients were told against what can have been, and against
// what is there in the end.
func (h *History) Check(t *testing.T, api kubernetes.Interface) {
	t.Helper()
	for n := range numbersOfKeys { // what is there in the end
		called := h.now()
		m, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), key(n), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		value, err := strconv.Atoi(m.Data["number"])
		h.record(clients, operation{key: n}, called, value, err)
	}
	t.Logf("%d reads, %d writes and %d Services were acknowledged", h.reads, h.writes, len(h.addresses))
	if lost := slices.Clone(h.operations); porcupine.CheckOperations(numbers, bounded(loseOne(lost))) {
		t.Error("a lost write isn't noticed: the check is worth nothing")
	}
	if h.writes == 0 || h.reads == 0 {
		t.Error("nothing was acknowledged")
	}
	switch porcupine.CheckOperationsTimeout(numbers, bounded(h.operations), 2*time.Minute) {
	case porcupine.Illegal:
		t.Error("the history isn't linearizable: an acknowledged write was lost, or a read was stale")
	case porcupine.Unknown:
		t.Error("the history couldn't be checked in time")
	}
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
