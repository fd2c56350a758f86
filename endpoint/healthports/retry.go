package healthports

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// bindRetry is a port that can't be opened at present.
type bindRetry struct {
	backoff wait.Backoff
	at      time.Time // of the next attempt
}

// bindBackoff is between attempts to open a health-check port.
func bindBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 2 * time.Minute}
}

// try opens a port, unless it is too early for another attempt.
func (s *Ports) try(at listenAt) {
	before := s.failed[at]
	if before != nil && time.Now().Before(before.at) {
		return
	}
	err := s.listen(at)
	if err == nil {
		delete(s.failed, at)
		return
	}
	if before == nil {
		before = &bindRetry{backoff: bindBackoff()}
		s.failed[at] = before
		s.reportFault(s.counts[at.port].Service, fmt.Sprintf("health check port %s can't be opened on this node; trying again: %v", at, err))
	}
	before.at = time.Now().Add(before.backoff.Step())
}

func (s *Ports) reportFault(service, message string) {
	if report := s.Report.Load(); report != nil {
		(*report)(service, message)
		return
	}
	s.log.Warn(message, "service", service)
}

// retryLater has open called when the next attempt is due.
func (s *Ports) retryLater() {
	if s.retry != nil {
		s.retry.Stop()
	}
	var first time.Time
	for _, f := range s.failed {
		if first.IsZero() || f.at.Before(first) {
			first = f.at
		}
	}
	if !first.IsZero() {
		s.retry = time.AfterFunc(time.Until(first), s.Open)
	}
}
