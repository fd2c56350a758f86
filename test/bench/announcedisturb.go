package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/kubelet"
	"github.com/fairway-net/fairway/lab/topology"
)

// noticed is what clients notice of an event: a line for each time that it happened.
type noticed struct {
	gaps                   []time.Duration
	packets                []int
	lost                   []losses
	connections            int
	made, refused, unheard int // of new connections, over all
}

const (
	// calm is how long everything is watched before and after an event.
	calm = 500 * time.Millisecond
	// gapLimit is how long the probe may be without an answer before measuring gives up.
	gapLimit = 30 * time.Second
)

// disturb has an event happen several times, each time to the node that the probe
// goes through.
func disturb(ctx context.Context, l *announceLab, e event) (string, error) {
	n := &noticed{connections: l.options.Connections}
	for range min(l.options.Repetitions, cmp.Or(e.most, l.options.Repetitions)) {
		if err := l.once(ctx, e, n); err != nil {
			return "", err
		}
	}
	return n.text(e), nil
}

// once has the event happen, and what it did is undone once nobody looks any more.
func (l *announceLab) once(ctx context.Context, e event, n *noticed) (err error) {
	if err := errors.Join(takePrecedence(announceLabName), l.settle(ctx)); err != nil {
		return err
	}
	if e.anew || l.pings.areBroken() {
		if err := l.forget(ctx); err != nil {
			return err
		}
	}
	if err := l.pings.fill(l.options.Connections); err != nil {
		return err
	}
	node := ""
	defer func() {
		if node != "" {
			err = errors.Join(err, e.undo(ctx, l, node))
		}
	}()
	flow, err := startProbe(l.hosts["client"], l.pings.to)
	if err != nil {
		return err
	}
	fresh := startNewcomers(l.hosts["client"], l.pings.to)
	defer func() {
		fresh.close()
		err = errors.Join(err, flow.close())
		gap, packets := flow.gap()
		n.gaps, n.packets = append(n.gaps, gap), append(n.packets, packets)
		n.made, n.refused, n.unheard = n.made+fresh.made, n.refused+fresh.refused, n.unheard+fresh.unheard
	}()
	pause(ctx, calm)
	if node, err = l.forwarder(ctx, flow); err != nil {
		return err
	}
	began := time.Now()
	if err := e.happen(ctx, l, node); err != nil {
		return err
	}
	pause(ctx, 2*calm)
	if !awaitAnswers(ctx, flow) {
		return fmt.Errorf("%s: the address is silent for %v", e.name, time.Since(began).Round(time.Second))
	}
	n.lost = append(n.lost, l.pings.check(ctx, time.Now()))
	return nil
}

// forget ends all connections, also those of which only the endpoint and nodes still
// know, where they went through before: they would take a later client's packets for
// theirs, and not refuse them. Elsewhere an address doesn't come back within seconds.
func (l *announceLab) forget(ctx context.Context) error {
	l.pings.close()
	if l.hosts["endpoint"] == nil {
		ns, err := netns.Open(topology.PodNamespace(announceLabName, kubelet.PodName("default", endpointPod)))
		if err != nil {
			return err
		}
		l.hosts["endpoint"] = ns
	}
	for _, node := range announcers {
		if _, err := l.inside(ctx, node, "conntrack", "--flush"); err != nil {
			return err
		}
	}
	_, err := l.inside(ctx, "endpoint", "ss", "--kill", "--tcp", "--numeric", "sport", "=", fmt.Sprint(portOfService))
	return err
}

// awaitAnswers waits until the probe is answered just now.
func awaitAnswers(ctx context.Context, flow *probe) bool {
	for deadline := time.Now().Add(gapLimit); time.Now().Before(deadline) && ctx.Err() == nil; {
		now := time.Now()
		pause(ctx, calm)
		if flow.answeredSince(now) {
			return true
		}
	}
	return false
}

// text sums up, beginning with whether the goal is met.
func (n *noticed) text(e event) string {
	slices.Sort(n.gaps)
	var all losses
	for _, l := range n.lost {
		all.reset, all.silent = all.reset+l.reset, all.silent+l.silent
	}
	packets := 0
	for _, p := range n.packets {
		packets += p
	}
	met := ""
	switch {
	case e.limit > 0:
		met = verdict(percentile(n.gaps, 99) <= e.limit)
	case e.noConnectionLost:
		met = verdict(all.all() == 0 && n.refused == 0)
	case e.nothingLost:
		met = verdict(packets == 0 && all.all() == 0)
	}
	return fmt.Sprintf("%slongest gap p50 %s, p99 %s, max %s (%d times); packets lost %d; connections lost %d of %d (%d reset, %d silent); new ones refused %d, unanswered %d of %d",
		met, milliseconds(percentile(n.gaps, 50)), milliseconds(percentile(n.gaps, 99)), milliseconds(n.gaps[len(n.gaps)-1]), len(n.gaps), packets,
		all.all(), n.connections*len(n.lost), all.reset, all.silent, n.refused, n.unheard, n.made+n.refused+n.unheard)
}

const metMark, notMetMark = "met: ", "not met: "

func verdict(met bool) string {
	if met {
		return metMark
	}
	return notMetMark
}

// percentile of sorted durations.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, (len(sorted)*p+99)/100-1)]
}
