package kube

import (
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"
)

// mostWarnings is how many texts are remembered.
const mostWarnings = 100

// Warnings logs what the API adds to its answers, such as why it no longer accepts
// a certificate: each text once, although it comes with each answer.
type Warnings struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]bool
}

var _ rest.WarningHandler = (*Warnings)(nil)

// NewWarnings returns one that logs to log.
func NewWarnings(log *slog.Logger) *Warnings { return &Warnings{log: log, said: map[string]bool{}} }

// HandleWarningHeader implements rest.WarningHandler.
func (w *Warnings) HandleWarningHeader(code int, _, text string) {
	if code != 299 || text == "" { // others are of caches in between
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[text] {
		return
	}
	if len(w.said) >= mostWarnings {
		clear(w.said)
	}
	w.said[text] = true
	w.log.Warn("the API says: " + text)
}
