// Package logdedup is a log handler for what is said over and over: a loop that tries
// again, or a library that reports each failure. Of messages that say the same it
// passes one on, and then one every few minutes.
package logdedup

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Every is how often the same is said again.
const Every = 5 * time.Minute

const (
	// passing is how long what is usually over in a moment must go on before it is said.
	passing = 10 * time.Second
	// pause is how long it must have been over to be another time of it.
	pause = time.Minute
)

// mostKept bounds how many different messages are remembered.
const mostKept = 1000

// momentary are messages of Kubernetes' libraries about requests that they repeat.
// While a server restarts each watch has one.
var momentary = []string{
	"Failed to watch", "Failed to prepare lease", "Failed to ensure lease exists, will retry", "Failed to update lease", "Failed to get lease",
}

// Handler passes messages on to another one. What differs in errors that mean the
// same is left out when they are compared: numbers, and what was asked for.
type Handler struct {
	slog.Handler
	every time.Duration
	said  *memory
}

// memory is shared by handlers with other attributes.
type memory struct {
	mu       sync.Mutex
	messages map[string]*occurrence
}

// occurrence is of one message.
type occurrence struct{ first, last, said time.Time }

// New returns a handler that passes the same on once in Every.
func New(h slog.Handler) *Handler {
	return &Handler{Handler: h, every: Every, said: &memory{messages: map[string]*occurrence{}}}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.said.due(key(r), r.Time, holdBack(r.Message), h.every) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.Handler.WithAttrs(attrs), h.every, h.said}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.Handler.WithGroup(name), h.every, h.said}
}

func holdBack(message string) time.Duration {
	if slices.Contains(momentary, message) {
		return passing
	}
	return 0
}

// due says whether a message is to be passed on now.
func (m *memory) due(key string, now time.Time, heldBack, every time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.messages[key]
	if o == nil || now.Sub(o.last) > every {
		if len(m.messages) >= mostKept {
			clear(m.messages)
		}
		o = &occurrence{first: now, last: now}
		m.messages[key] = o
	}
	if now.Sub(o.last) > pause {
		o.first = now
	}
	o.last = now
	if now.Sub(o.first) < heldBack || !o.said.IsZero() && now.Sub(o.said) < every {
		return false
	}
	o.said = now
	return true
}

// varying is what errors of one cause differ in.
var varying = regexp.MustCompile(`\([^()]*\)|"[^"]*"|[0-9]+`)

// key is the message, and the error without what varies: of a chain of errors, the
// cause.
func key(r slog.Record) string {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" || a.Key == "error" {
			cause := varying.ReplaceAllString(a.Value.String(), "")
			text += "\n" + cause[strings.LastIndex(cause, ": ")+1:]
		}
		return true
	})
	return text
}
