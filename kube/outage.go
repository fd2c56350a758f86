package kube

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// outageGrace is how long requests to the API may fail before it is said: a server
// that restarts is back sooner.
const outageGrace = 5 * time.Second

// Outage says when the API goes and when it comes back.
type Outage struct {
	Log *slog.Logger

	mu    sync.Mutex
	since time.Time // of the first failure; zero while the API answers
	said  bool
	timer *time.Timer
}

// Observe takes in the outcome of a request; see Reach.
func (a *Outage) Observe(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil && a.since.IsZero():
	case err == nil:
		a.timer.Stop()
		if a.said {
			a.Log.Info("the API answers again", "outage", time.Since(a.since).Round(time.Second))
		}
		a.since, a.said = time.Time{}, false
	case a.since.IsZero():
		began := time.Now()
		a.since = began
		a.timer = time.AfterFunc(outageGrace, func() { a.say(began, err) })
	}
}

func (a *Outage) say(began time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.since.Equal(began) {
		return // it came back meanwhile
	}
	a.said = true
	a.Log.Warn("the API does not answer; forwarding continues with the last known state", "since", began.Format(time.TimeOnly), "error", err)
}

// Close ends the timer.
func (a *Outage) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
	a.since = time.Time{}
}

// Away is how long the API hasn't answered; 0 if it does.
func (a *Outage) Away() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since.IsZero() {
		return 0
	}
	return time.Since(a.since)
}

// Metric shows how long the API has been away.
func (a *Outage) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "fairway", Name: "api_away_seconds", Help: "For how long the API hasn't answered; 0 while it does.",
	}, func() float64 { return a.Away().Seconds() })
}
