package fakeapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// order is what the test has a stream do.
type order string

const (
	orderBookmark order = "bookmark" // tell the version reached
	orderEnd      order = "end"      // end as watches do when their time is over
	orderCut      order = "cut"      // break the connection
	orderHalf     order = "half"     // break it in the middle of an event
	orderGone     order = "gone"     // say that the history is gone
)

// stream is one watch.
type stream struct {
	server    *Server
	w         http.ResponseWriter
	e         encoding
	resource  string
	match     match
	bookmarks bool
	reached   int64
	orders    chan task
	ended     chan struct{}
	conn      *connection
}

// task is an order that is waited for.
type task struct {
	order order
	done  chan struct{}
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	m, err := matchOf(r, info)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	query := r.URL.Query()
	s.mu.Lock()
	st := &stream{
		server: s, w: w, e: s.encoding(r), resource: info.Resource, match: m,
		bookmarks: query.Get("allowWatchBookmarks") == "true", orders: make(chan task), ended: make(chan struct{}),
	}
	st.conn, _ = r.Context().Value(connectionKey{}).(*connection)
	behaviour, oldest, version := s.behaviour, s.oldest, s.version
	initial := query.Get("sendInitialEvents") == "true"
	if initial && !behaviour.WatchList {
		s.mu.Unlock()
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		return
	}
	from := query.Get("resourceVersion")
	if initial || from == "" || from == "0" {
		st.reached = version
	} else if st.reached, err = strconv.ParseInt(from, 10, 64); err != nil {
		s.mu.Unlock()
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "resourceVersion: "+err.Error())
		return
	}
	s.seen.Watches++
	s.note(st.e, "watch")
	var have []*unstructured.Unstructured
	if initial || from == "" || from == "0" {
		have = s.sorted(info.Resource, m)
	}
	if initial {
		s.seen.Streamed++
	}
	s.watches[st] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, st)
		close(st.ended)
	}()
	expired := st.reached < oldest
	if expired && behaviour.GoneByStatus {
		refuseWith(w, gone())
		return
	}
	w.Header().Set("Content-Type", st.contentType())
	w.WriteHeader(http.StatusOK)
	if expired {
		st.fail(gone())
		return
	}
	for _, o := range have {
		if !st.send(watch.Added, o) {
			return
		}
	}
	if initial && !st.bookmark(version, map[string]string{metav1.InitialEventsAnnotationKey: "true"}) {
		return
	}
	st.run(r, timeout(query.Get("timeoutSeconds")))
}

func gone() *metav1.Status {
	return status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
}

func timeout(seconds string) time.Duration {
	n, err := strconv.Atoi(seconds)
	if err != nil || n <= 0 {
		n = 1800
	}
	return time.Duration(n) * time.Second
}

func (st *stream) contentType() string {
	if st.e.protobuf {
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return runtime.ContentTypeJSON
}

// run sends changes and follows orders until the watch ends. An order comes after
// the changes that were made before it: a bookmark tells their version.
func (st *stream) run(r *http.Request, lifetime time.Duration) {
	ended := time.After(lifetime)
	st.flush()
	for {
		changed, ok := st.catchUp()
		if !ok {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ended:
			return
		case <-changed:
		case t := <-st.orders:
			if _, ok := st.catchUp(); !ok {
				close(t.done)
				return
			}
			if !st.follow(t) {
				return
			}
		}
	}
}

// catchUp sends what has changed, and tells what is closed at the next change.
func (st *stream) catchUp() (changed <-chan struct{}, ok bool) {
	s := st.server
	s.mu.Lock()
	changed, version := s.changed, s.version
	if s.behaviour.Mute {
		version = st.reached
	}
	var todo []change
	for _, c := range s.changes {
		if c.version > st.reached && c.version <= version && c.resource == st.resource {
			todo = append(todo, c)
		}
	}
	s.mu.Unlock()
	for _, c := range todo {
		if !st.pass(c) {
			return nil, false
		}
	}
	st.reached = version
	st.flush()
	return changed, true
}

// pass sends what a change is to this watch: an object that stops matching the
// selector is deleted as far as its watchers know.
func (st *stream) pass(c change) bool {
	was, is := st.match(c.old), st.match(c.now)
	switch {
	case was && is:
		return st.send(watch.Modified, c.now)
	case is:
		return st.send(watch.Added, c.now)
	case was:
		last := c.old.DeepCopy()
		last.SetResourceVersion(strconv.FormatInt(c.version, 10))
		return st.send(watch.Deleted, last)
	}
	return true
}

func (st *stream) follow(t task) bool {
	defer close(t.done)
	switch t.order {
	case orderBookmark:
		ok := !st.bookmarks || st.bookmark(st.reached, nil)
		st.flush()
		return ok
	case orderGone:
		st.fail(gone())
	case orderHalf:
		_, _ = st.w.Write([]byte(`{"type":"MODI`))
		st.flush()
		st.reset()
	case orderCut:
		st.reset()
	}
	return false
}

func (st *stream) bookmark(version int64, annotations map[string]string) bool {
	gvk := kinds[st.resource]
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetResourceVersion(strconv.FormatInt(version, 10))
	o.SetAnnotations(annotations)
	return st.send(watch.Bookmark, o)
}

func (st *stream) send(kind watch.EventType, o *unstructured.Unstructured) bool {
	object, err := st.e.object(o)
	if err != nil {
		panic(fmt.Errorf("encode what the test gave: %w", err))
	}
	return st.write(kind, object)
}

func (st *stream) fail(s *metav1.Status) {
	object, err := st.e.status(s)
	if err != nil {
		panic(err)
	}
	st.write(watch.Error, object)
	st.flush()
}

func (st *stream) write(kind watch.EventType, object []byte) bool {
	event, err := st.e.event(string(kind), object)
	if err != nil {
		panic(err)
	}
	_, err = st.w.Write(event)
	return err == nil
}

func (st *stream) flush() { st.w.(http.Flusher).Flush() }

// reset breaks the connection with a RST; with HTTP 2 it carries other streams,
// which break too.
func (st *stream) reset() {
	st.conn.abort()
	panic(http.ErrAbortHandler)
}
