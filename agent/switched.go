package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
)

// took notes that a new plane is complete.
func (s *switcher) took(c *change) {
	s.mu.Lock()
	old := s.inForce
	s.inForce = c.to
	if s.change == c {
		s.change = nil
	}
	s.finished = c
	s.mu.Unlock()
	s.leftovers = slices.DeleteFunc(s.leftovers, func(r *running) bool { return r.mode == c.to.mode })
	if old.mode == c.to.mode {
		s.closed(old) // the new one has taken over what was the old one's
	} else {
		s.leftovers = append(s.leftovers, old)
	}
	s.log.Info("mode changed", "from", old.mode, "to", c.to.mode)
}

// failed takes back what a new plane has begun. It may try again, unless this
// machine can't do it or it has failed too often.
func (s *switcher) failed(ctx context.Context, c *change, reason error) {
	stays := s.current().mode
	if c.to.mode != stays {
		if err := s.takeAway(ctx, c.to); err != nil {
			reason = errors.Join(reason, fmt.Errorf("take back what was begun: %w", err))
		}
	}
	c.failures++
	if !kernel.IsMissing(reason) && c.failures < switchTries {
		s.log.Warn("change of mode failed; trying again", "from", stays, "to", c.to.mode, "error", reason)
		time.AfterFunc(switchPause<<(c.failures-1), func() { signal(s.renew) })
		return
	}
	s.closed(c.to)
	s.log.Error("mode not changed", "from", stays, "to", c.to.mode, "error", reason)
	if s.withdraw(c) {
		c.end(fmt.Errorf("change mode from %s to %s: %w", stays, c.to.mode, reason))
	}
}
