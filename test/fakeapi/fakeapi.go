// Package fakeapi is an API server that isn't Fairway's, for tests: it speaks
// what Kubernetes promises to clients of lists and watches, and no more. Watches
// end and expire, lists come in pages whose continuation expires, requests are
// held back, connections break in the middle of an event. Objects are what the
// test gives it, word for word: managed fields and fields of versions to come
// included. It runs in the test's process or in one of its own (see [Play]).
//
// What is promised: https://kubernetes.io/docs/reference/using-api/api-concepts/.
package fakeapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Server holds objects and their history, and is an http.Handler.
type Server struct {
	// Token is what clients must show; "" lets everybody in. A test changes it by
	// the line "token".
	Token string
	// Rules are what clients may do; nil allows everything.
	Rules []rbacv1.PolicyRule

	mu        sync.Mutex
	version   int64 // of the last change
	oldest    int64 // watches from before this version have expired
	objects   map[identity]*unstructured.Unstructured
	changes   []change
	changed   chan struct{} // closed at the next change
	watches   map[*stream]struct{}
	behaviour behaviour
	seen      Seen
	notYet    map[string]time.Time // when a held-back request may come again, by path
}

// behaviour is how the server treats requests to come.
type behaviour struct {
	WatchList    bool          // lists may be streamed (1.32 and later, where enabled)
	JSON         bool          // nothing but JSON is spoken
	GoneByStatus bool          // an expired watch is refused outright, not in its stream
	Page         int           // objects in a page at most; 0 leaves it to the client
	Slow         time.Duration // what a page takes
	Stale        int           // so many of the next continuations have expired
	Refuse       int           // so many of the next requests are held back (429)
	RetryAfter   int           // seconds that they are told to wait
	Away         bool          // nobody answers: 503
	Mute         bool          // open watches tell nothing
}

// Seen is what clients did.
type Seen struct {
	Lists, Pages, Watches, Streamed, Refused int
	// Unauthorized counts requests without the token that is good.
	Unauthorized int
	// Early counts requests that came before the time they were told.
	Early     int
	Access    []Access
	Forbidden []Access // each once
	Encodings []string // of lists and watches, as sent
}

// Access is a permission that was used.
type Access struct{ Verb, Group, Resource string }

// identity names an object.
type identity struct{ resource, namespace, name string }

// change is one step of the history.
type change struct {
	version  int64
	resource string
	old, now *unstructured.Unstructured // nil: not there
}

// NewServer makes a server without objects. Versions begin somewhere, as in a
// cluster that has lived for a while.
func NewServer() *Server {
	const start = 1000
	return &Server{
		version: start, oldest: start, objects: map[identity]*unstructured.Unstructured{},
		changed: make(chan struct{}), watches: map[*stream]struct{}{}, notYet: map[string]time.Time{},
	}
}

// Apply makes or replaces an object, given as JSON with kind and apiVersion.
func (s *Server) Apply(text []byte) error {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &o.Object); err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	resource, ok := resourceOf(o)
	if !ok {
		return fmt.Errorf("read object: kind %q is not served", o.GetKind())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(resource, identity{resource, o.GetNamespace(), o.GetName()}, o)
	return nil
}

// Delete removes an object.
func (s *Server) Delete(resource, namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := identity{resource, namespace, name}
	if s.objects[id] == nil {
		return fmt.Errorf("delete %s %s/%s: not found", resource, namespace, name)
	}
	s.store(resource, id, nil)
	return nil
}

// store makes a change; the caller holds the lock.
func (s *Server) store(resource string, id identity, now *unstructured.Unstructured) {
	s.version++
	old := s.objects[id]
	if now == nil {
		delete(s.objects, id)
	} else {
		now.SetResourceVersion(strconv.FormatInt(s.version, 10))
		s.objects[id] = now
	}
	s.changes = append(s.changes, change{version: s.version, resource: resource, old: old, now: now})
	s.wake()
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Seen tells what clients did so far.
func (s *Server) Seen() Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	seen.Access, seen.Encodings = slices.Clone(seen.Access), slices.Clone(seen.Encodings)
	return seen
}

// Objects gives the objects of a resource as they are now, by name.
func (s *Server) Objects(resource string) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted(resource, func(*unstructured.Unstructured) bool { return true })
}
