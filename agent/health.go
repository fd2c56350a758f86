package agent

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairway-net/fairway/internal/httpports"
)

// health knows whether this agent keeps up. As with kube-proxy, it is unwell
// once a change has waited for longer than twice the sync period.
type health struct {
	changeTimeout time.Duration
	now           func() time.Time

	mu       sync.Mutex
	synced   bool      // the first complete table is in force
	queued   time.Time // when the oldest change came that is not in force; zero if none
	applied  time.Time // when the kernel was last brought in step
	eligible bool      // this node shall get traffic from load balancers
}

func newHealth(changeTimeout time.Duration) *health {
	return &health{changeTimeout: changeTimeout, now: time.Now, eligible: true}
}

// setChangeTimeout tells how long a change may wait from now on.
func (h *health) setChangeTimeout(changeTimeout time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changeTimeout = changeTimeout
}

// changed notes that a change came.
func (h *health) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queued.IsZero() {
		h.queued = h.now()
	}
}

// syncEnded notes how a sync ended, which began at a time: changes that came
// before it are in force now.
func (h *health) syncEnded(r syncOutcome) {
	if r.Err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced, h.applied = true, h.now()
	h.clear(r.Began)
}

// unchanged notes that changes from before a time altered nothing.
func (h *health) unchanged(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clear(before)
}

// clear notes that changes from before a time are in force. The lock is held.
func (h *health) clear(before time.Time) {
	if !h.queued.After(before) {
		h.queued = time.Time{}
	}
}

// setEligible notes whether the Node may get traffic from load balancers.
func (h *health) setEligible(eligible bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eligible = eligible
}

// times are when the oldest change came that is not in force, zero if there is
// none, and when the kernel was last brought in step.
func (h *health) times() (queued, applied time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queued, h.applied
}

// state says whether the agent lives, and whether the node may get traffic.
func (h *health) state() (live, eligible bool, applied time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	live = h.synced && (h.queued.IsZero() || h.now().Sub(h.queued) < h.changeTimeout)
	return live, live && h.eligible, h.applied
}

// serveHealthz answers for load balancers (kube-proxy's /healthz): also
// unhealthy when the Node is going away (KEP-3836).
func (h *health) serveHealthz(count *prometheus.CounterVec, seen *httpports.SLIs) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		live, eligible, applied := h.state()
		seen.Checked("healthz", live)
		h.answer(w, count, eligible, applied)
	}
}

// serveLivez answers for whoever restarts the agent (kube-proxy's /livez).
func (h *health) serveLivez(count *prometheus.CounterVec, seen *httpports.SLIs) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		live, _, applied := h.state()
		seen.Checked("livez", live)
		h.answer(w, count, live, applied)
	}
}

func (h *health) answer(w http.ResponseWriter, count *prometheus.CounterVec, ok bool, applied time.Time) {
	code := http.StatusOK
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ok {
		code = http.StatusServiceUnavailable
	}
	count.WithLabelValues(strconv.Itoa(code)).Inc()
	w.WriteHeader(code)
	now := h.now()
	if ok { // as kube-proxy says it: up to date as of now
		applied = now
	}
	body := map[string]string{"lastUpdated": applied.Format(time.RFC3339Nano), "currentTime": now.Format(time.RFC3339Nano)}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // the client went away
	}
}
