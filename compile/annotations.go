package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/model"
)

// The annotations that say what the API has no field for. All but
// AnnotationWeight are on Services; AnnotationBackup is on both.
const (
	// AnnotationScheduler names a way of choosing among endpoints: random, rr,
	// wrr, lc, wlc, dh, sh, sed, nq, mh or mh-port.
	AnnotationScheduler = "fairway.dev/scheduler"
	// AnnotationWeights gives endpoints weights, by address or by the name of
	// their Pod: "10.244.1.2=3,web-0=2".
	AnnotationWeights = "fairway.dev/weights"
	// AnnotationBackup names endpoints that take new connections only while no other one is
	// ready, by address or by the name of their Pod: "10.244.1.2,web-0". On an EndpointSlice
	// it is true or false, for all of its endpoints.
	AnnotationBackup = "fairway.dev/backup"
	// AnnotationOrphans says what becomes of TCP connections whose endpoint is
	// gone for good: keep, reset or deadline=30s.
	AnnotationOrphans = "fairway.dev/orphans"
	// AnnotationDirectReturn says whether endpoints answer clients outside
	// themselves, who have come by way of another node: true or false.
	AnnotationDirectReturn = "fairway.dev/direct-return"
	// AnnotationStableFlows has connections of clients outside go on when their
	// packets come in at another node from one moment to the next: true or false.
	AnnotationStableFlows = "fairway.dev/stable-flows"
	// AnnotationWeight, on an EndpointSlice, is the weight of its endpoints.
	AnnotationWeight = "fairway.dev/weight"
)

// maxWeight keeps weights to what every plane can express: some give an
// endpoint as many places as its weight.
const maxWeight = 100

// overrides are what annotations ask for.
type overrides struct {
	scheduler      model.Scheduler
	orphans        model.Orphans
	orphanDeadline time.Duration
	directReturn   *bool // nil leaves it to the node
	stable         bool
	byAddr         map[netip.Addr]uint8
	byTarget       map[uint64]uint8
	backupAddrs    map[netip.Addr]struct{}
	backupTargets  map[uint64]struct{}
}

func (p *spec) readAnnotations(annotations map[string]string) {
	read := func(name string, parse func(*overrides, string) error) {
		text, given := annotations[name]
		if !given {
			return
		}
		w := p.overrides
		if err := parse(&w, strings.TrimSpace(text)); err != nil {
			p.problem(ReasonInvalid, "annotation %s is ignored: %v", name, err)
			return
		}
		p.overrides = w
	}
	read(AnnotationScheduler, (*overrides).parseScheduler)
	read(AnnotationOrphans, (*overrides).parseOrphans)
	read(AnnotationWeights, (*overrides).parseWeights)
	read(AnnotationBackup, (*overrides).parseBackup)
	read(AnnotationDirectReturn, (*overrides).parseDirectReturn)
	read(AnnotationStableFlows, (*overrides).parseStable)
	p.settleStable()
}

// settleStable makes of stable flows what they take: endpoints that answer
// clients themselves, and a choice that all nodes make alike. With session affinity
// that is by the client's address alone.
func (p *spec) settleStable() {
	w := &p.overrides
	if !w.stable {
		return
	}
	chosen := w.scheduler
	switch {
	case p.externalLocal:
		p.noStable("externalTrafficPolicy Local has each node choose among its own endpoints")
	case w.directReturn != nil && !*w.directReturn:
		p.noStable(AnnotationDirectReturn + " is false, and endpoints must answer clients themselves")
	case chosen != model.DefaultScheduler && chosen != model.MaglevHashing && chosen != model.MaglevPortHashing:
		p.noStable(fmt.Sprintf("nodes choose alike by %s and %s only, and %s is %s",
			model.MaglevHashing, model.MaglevPortHashing, AnnotationScheduler, chosen))
	default:
		w.directReturn = &w.stable
		if p.affinity > 0 {
			w.scheduler = model.MaglevHashing
		} else if chosen == model.DefaultScheduler {
			w.scheduler = model.MaglevPortHashing
		}
	}
}

func (p *spec) noStable(why string) {
	p.overrides.stable = false
	p.problem(ReasonInvalid, "annotation %s is ignored: %s", AnnotationStableFlows, why)
}

func (w *overrides) parseScheduler(text string) error {
	if !slices.Contains(model.Schedulers(), model.Scheduler(text)) {
		return fmt.Errorf("%q: must be one of %v", text, model.Schedulers())
	}
	w.scheduler = model.Scheduler(text)
	return nil
}

func (w *overrides) parseOrphans(text string) error {
	deadline, timed := strings.CutPrefix(text, "deadline=")
	switch {
	case text == "keep":
		w.orphans = model.OrphansKeep
	case text == "reset":
		w.orphans = model.OrphansReset
	case timed:
		d, err := time.ParseDuration(deadline)
		if err != nil || d <= 0 || d > 24*time.Hour {
			return fmt.Errorf("%q: the deadline must be a duration up to 24h, such as 30s", text)
		}
		w.orphans, w.orphanDeadline = model.OrphansDeadline, d
	default:
		return fmt.Errorf("%q: must be keep, reset or deadline=DURATION", text)
	}
	return nil
}

func (w *overrides) parseDirectReturn(text string) error {
	direct, err := parseBool(text)
	w.directReturn = &direct
	return err
}

func (w *overrides) parseStable(text string) (err error) {
	w.stable, err = parseBool(text)
	return err
}

func parseBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("%q: must be true or false", text)
	}
	return text == "true", nil
}

func (w *overrides) parseWeights(text string) error {
	byAddr, byTarget := map[netip.Addr]uint8{}, map[uint64]uint8{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, number, found := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		if !found || name == "" {
			return fmt.Errorf("%q: must be ENDPOINT=WEIGHT", item)
		}
		weight, err := parseWeight(number)
		if err != nil {
			return fmt.Errorf("%q: %w", item, err)
		}
		if a, err := netip.ParseAddr(name); err == nil {
			byAddr[a.Unmap()] = weight
		} else {
			byTarget[targetHash(name)] = weight
		}
	}
	w.byAddr, w.byTarget = byAddr, byTarget
	return nil
}

func (w *overrides) parseBackup(text string) error {
	addrs, targets := map[netip.Addr]struct{}{}, map[uint64]struct{}{}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if a, err := netip.ParseAddr(item); err == nil {
			addrs[a.Unmap()] = struct{}{}
			continue
		}
		if item == "" || strings.ContainsAny(item, "=:/ ") {
			return fmt.Errorf("%q: must be ENDPOINT,..., each an address or the name of a Pod", text)
		}
		targets[targetHash(item)] = struct{}{}
	}
	w.backupAddrs, w.backupTargets = addrs, targets
	return nil
}

// isBackup reports whether an endpoint stands by: its slice says so, or the Service by
// address or name.
func (w *overrides) isBackup(a netip.Addr, e *endpoint) bool {
	_, byAddr := w.backupAddrs[a]
	_, byTarget := w.backupTargets[e.target]
	return e.backup || byAddr || e.target != 0 && byTarget
}

func parseWeight(text string) (uint8, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 8)
	if err != nil || n > maxWeight {
		return 0, fmt.Errorf("weight %q: must be a whole number from 0 to %d", text, maxWeight)
	}
	return uint8(n), nil
}

// weight is the weight of an endpoint: by address, else by name, else as its
// slice says.
func (w *overrides) weight(a netip.Addr, e *endpoint) uint8 {
	if weight, given := w.byAddr[a]; given {
		return weight
	}
	if e.target != 0 {
		if weight, given := w.byTarget[e.target]; given {
			return weight
		}
	}
	return e.weight
}
