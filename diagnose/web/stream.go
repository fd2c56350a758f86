package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// The topics that a browser is told of; it asks again for what it shows.
const (
	topicServices = "services"
	topicNodes    = "nodes"
	topicChanges  = "changes"
	topicState    = "state"
)

// hub tells browsers that something changed.
type hub struct {
	mu      sync.Mutex
	clients set[*client]
}

// client is a browser that listens.
type client struct {
	fresh set[string]   // topics to tell of
	wake  chan struct{} // holds one
}

func newHub() *hub { return &hub{clients: set[*client]{}} }

func (h *hub) publish(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.clients {
		c.fresh[topic] = struct{}{}
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

func (h *hub) join() *client {
	c := &client{fresh: set[string]{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients[c] = struct{}{}
	return c
}

func (h *hub) leave(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
}

// take takes what is to be told.
func (h *hub) take(c *client) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]string, 0, len(c.fresh))
	for topic := range c.fresh {
		list = append(list, topic)
	}
	clear(c.fresh)
	return list
}

// betweenEvents is how long a browser is left alone after it was told something,
// and betweenSigns how long the stream is silent at most.
const (
	betweenEvents = 250 * time.Millisecond
	betweenSigns  = 15 * time.Second
)

// events answers GET /api/v1/events: a stream of the names of what changed, for as long as the
// browser's link is good.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	out := newStream(w)
	me := p.hub.join()
	defer p.hub.leave(me)
	out.send("hello", p.config.Version)
	for out.err == nil && p.guard.knows(r) && !p.guard.isOver() {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(betweenSigns):
			out.send("alive", nil)
		case <-me.wake:
			out.send("changed", p.hub.take(me))
			select {
			case <-r.Context().Done():
			case <-time.After(betweenEvents):
			}
		}
	}
}

// stream writes server-sent events; calls may come from any goroutine.
type stream struct {
	mu  sync.Mutex
	w   http.ResponseWriter
	err error
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return &stream{w: w}
}

func (s *stream) send(event string, data any) {
	text, err := json.Marshal(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if err == nil {
		_, err = fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, text)
	}
	if err == nil {
		err = http.NewResponseController(s.w).Flush()
	}
	s.err = err
}
