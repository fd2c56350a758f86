package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// fakeAPI speaks what Kubernetes promises about lists and watches, and no more:
// no streamed lists, watches that end, and resource versions that expire.
type fakeAPI struct {
	mu       sync.Mutex
	services []string
	lists    int
	watches  chan *watcher
	fail     int // so many of the next lists are answered 429
}

// watcher is one open watch.
type watcher struct {
	events chan metav1.WatchEvent
	ended  chan struct{}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		f.write(w, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
	case q.Get("watch") != "":
		f.serveWatch(w, r)
	default:
		f.serveList(w)
	}
}

func (f *fakeAPI) write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client has gone
	}
	w.(http.Flusher).Flush()
}

func (f *fakeAPI) serveList(w http.ResponseWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	if f.fail > 0 {
		f.fail--
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, name := range f.services {
		list.Items = append(list.Items, *service(name))
	}
	f.write(w, list)
}

func (f *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	open := &watcher{events: make(chan metav1.WatchEvent), ended: make(chan struct{})}
	select {
	case f.watches <- open:
	case <-r.Context().Done():
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-open.ended:
			return
		case e := <-open.events:
			f.write(w, e)
		}
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "2"}}
}

func event(t *testing.T, kind string, obj any) metav1.WatchEvent {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	e := metav1.WatchEvent{Type: kind}
	e.Object.Raw = raw
	return e
}

// collector is a sink that remembers what it has.
type collector struct {
	mu     sync.Mutex
	names  map[string]bool
	synced int
}

func (c *collector) sink() Sink[*corev1.Service] {
	lock := func(f func()) { c.mu.Lock(); defer c.mu.Unlock(); f() }
	return Sink[*corev1.Service]{
		Set:    func(s *corev1.Service) { lock(func() { c.names[s.Name] = true }) },
		Delete: func(n types.NamespacedName) { lock(func() { delete(c.names, n.Name) }) },
		Synced: func() { lock(func() { c.synced++ }) },
	}
}

func (c *collector) wait(t *testing.T, synced int, want ...string) {
	t.Helper()
	var got []string
	for range wait.Tries(30 * time.Second) {
		c.mu.Lock()
		got = got[:0]
		for name := range c.names {
			got = append(got, name)
		}
		done := c.synced >= synced
		c.mu.Unlock()
		slices.Sort(got)
		if done && slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("after 30 s the sink has %v, want %v (%d times complete)", got, want, synced)
}

func TestWatchOutlivesWhatAnAPIMayDo(t *testing.T) {
	api := &fakeAPI{services: []string{"a", "b"}, watches: make(chan *watcher), fail: 2}
	server := httptest.NewServer(api)
	defer server.Close()
	client, err := Client(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := &collector{names: map[string]bool{}}
	go Watch(ctx, Source{Client: client.CoreV1().RESTClient(), Resource: "services"}, got.sink())

	got.wait(t, 1, "a", "b") // after two lists were refused with 429
	w := <-api.watches
	w.events <- event(t, "ADDED", service("c"))
	w.events <- event(t, "MODIFIED", service("a"))
	w.events <- event(t, "DELETED", service("b"))
	got.wait(t, 1, "a", "c")

	close(w.ended) // a watch may end at any time; it goes on where it was
	w = <-api.watches
	w.events <- event(t, "ADDED", service("d"))
	got.wait(t, 1, "a", "c", "d")

	// The resource version expires, and what was deleted meanwhile is only
	// missing from the next list.
	api.mu.Lock()
	api.services = []string{"d", "e"}
	api.mu.Unlock()
	w.events <- event(t, "ERROR", metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
		Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
	got.wait(t, 2, "d", "e")
}

// TestAskedHearsOfTheListAlone: an API without streamed lists refuses the watch
// that asks for one, and the kind can be read all the same.
func TestAskedHearsOfTheListAlone(t *testing.T) {
	api := &fakeAPI{services: []string{"a"}, watches: make(chan *watcher)}
	server := httptest.NewServer(api)
	defer server.Close()
	client, err := Client(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := make(chan error, 100)
	got := &collector{names: map[string]bool{}}
	go Watch(ctx, Source{Client: client.CoreV1().RESTClient(), Resource: "services", Asked: func(err error) { answers <- err }}, got.sink())
	got.wait(t, 1, "a")
	<-api.watches
	if err := <-answers; err != nil {
		t.Errorf("the first answer is %v, though the list succeeded", err)
	}
}

func TestTrimKeepsWhatIsRead(t *testing.T) {
	s := service("a")
	s.Annotations = map[string]string{lastApplied: "{}", "fairway.dev/scheduler": "rr"}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := Trim(s); err != nil {
		t.Fatal(err)
	}
	if s.ManagedFields != nil || len(s.Annotations) != 1 || s.Annotations["fairway.dev/scheduler"] != "rr" {
		t.Errorf("trimmed to %+v", s.ObjectMeta)
	}
}
