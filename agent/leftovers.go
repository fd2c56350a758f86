package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/legacytrace"
)

// removeLeftovers removes what other modes left, and what traces did.
func (a *Agent) removeLeftovers(ctx context.Context, verified bool) {
	a.planes.removeLeftovers(ctx, verified)
	if first := !a.lookedForTraces.Swap(true); !verified && !first {
		return
	}
	was, err := legacytrace.Sweep()
	switch {
	case err != nil:
		a.config.Log.Debug("the logger of iptables' rules can't be set back to what it was before a trace was killed", "error", err)
	case was != "":
		a.config.Log.Info("the logger of iptables' rules is as it was before a trace was killed", "sysctls", "net.netfilter.nf_log="+was)
	}
}

// othersGone has what is there of other modes removed once more: whoever has ended
// just now may have put his rules back after they were.
func (s *switcher) othersGone() {
	s.mu.Lock()
	s.lookAgain = true
	s.mu.Unlock()
	signal(s.renew)
}

// removeLeftovers removes what other modes left, now that the mode in force is complete.
// What can't be removed is tried again with the next comparison.
func (s *switcher) removeLeftovers(ctx context.Context, verified bool) {
	s.mu.Lock()
	finished, again, inForce, abandoned := s.finished, s.lookAgain, s.inForce, s.abandoned
	s.finished, s.lookAgain, s.abandoned = nil, false, nil
	s.mu.Unlock()
	for _, c := range abandoned {
		if c.to != inForce {
			s.closed(c.to)
		}
	}
	if again {
		s.suspectAll(inForce)
	}
	var stay []*running
	for _, left := range s.leftovers {
		tried := (left.plane != nil || left.problem != "") && finished == nil && !verified
		if !tried {
			next, err := s.remove(ctx, left)
			if err == nil {
				continue
			}
			next.problem = err.Error()
			if next.problem != left.problem {
				s.reportLeftovers(left.mode, err)
			}
			left = next
		}
		stay = append(stay, left)
	}
	if len(stay) == 0 && len(s.leftovers) > 0 {
		if err := inForce.plane.Prepare(ctx, kernel.Alone); err != nil {
			s.log.Warn("leftovers of other modes can't be checked; the mode in force assumes that they are there", "mode", inForce.mode, "error", err)
		}
	}
	s.leftovers = stay
	if finished != nil {
		finished.end(nil)
	}
}

// suspectAll takes all modes but one for left over.
func (s *switcher) suspectAll(inForce *running) {
	for _, k := range s.kinds {
		known := func(r *running) bool { return r.mode == k.Name }
		if k.Name != inForce.mode && !slices.ContainsFunc(s.leftovers, known) {
			s.leftovers = append(s.leftovers, &running{mode: k.Name, options: inForce.options})
		}
	}
}

// reportLeftovers says that a mode's leftovers stay. They may go on forwarding, to
// endpoints that age.
func (s *switcher) reportLeftovers(mode string, reason error) {
	s.log.Warn("leftovers of another mode can't be removed; trying again with each comparison", "mode", mode, "error", reason)
	if report := s.report.Load(); report != nil {
		(*report)(reasonLeftovers, fmt.Sprintf("what mode %s may have left can't be removed: %v", mode, reason))
	}
}

// remove removes a mode, unless it can have left nothing.
func (s *switcher) remove(ctx context.Context, left *running) (*running, error) {
	if left.plane == nil {
		made, err := s.make(left.mode, left.options)
		if s.kindOf(left.mode).LeftNothing(err) {
			return left, nil
		}
		if err != nil {
			return &running{mode: left.mode, options: left.options}, fmt.Errorf("look for it: %w", err)
		}
		made.problem = left.problem
		left = made
	}
	if err := s.takeAway(ctx, left); err != nil {
		return left, err
	}
	s.closed(left)
	return left, nil
}

// takeAway removes a plane from the kernel. First its connections are moved, and the
// plane in force is told of them.
func (s *switcher) takeAway(ctx context.Context, r *running) error {
	moved := migrate.Move(ctx, r.plane.Connections(), s.current().plane.Connections())
	if moved != nil {
		moved = fmt.Errorf("move connections: %w", moved)
	}
	return errors.Join(moved, r.plane.Remove(ctx, kernel.HandOver))
}

// closed gives up what a plane holds in this process.
func (s *switcher) closed(r *running) {
	if err := r.plane.Close(); err != nil {
		s.log.Warn("the data plane of another mode could not be closed", "mode", r.mode, "error", err)
	}
}
