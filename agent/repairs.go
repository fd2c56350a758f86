package agent

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// repairsGather is how long repairs are gathered from the first: what leads DNS
// questions here is looked at several times in that time.
const repairsGather = 2 * time.Second

// repairs says what somebody else changed or removed and this agent put back: one
// cause, such as `nft flush ruleset`, is one message and one Event.
type repairs struct {
	log    *slog.Logger
	events *events

	mu    sync.Mutex
	parts []string // repaired, and not yet said
}

// done takes in that a part was repaired, named as in "repaired: the Services
// of nftables mode".
func (r *repairs) done(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.parts, part) {
		return
	}
	if len(r.parts) == 0 {
		time.AfterFunc(repairsGather, r.say)
	}
	r.parts = append(r.parts, part)
}

func (r *repairs) say() {
	r.mu.Lock()
	message := "somebody else changed or removed kernel objects of this agent; compared and repaired: " + strings.Join(r.parts, ", ")
	r.parts = nil
	r.mu.Unlock()
	r.log.Warn(message)
	r.events.ReportNode(reasonRepaired, message)
}
