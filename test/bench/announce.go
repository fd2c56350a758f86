package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// AnnounceOptions say what to measure of announced addresses, and where to put it.
type AnnounceOptions struct {
	Only        []string // events; empty for all
	Ways        []string // see AnnounceWays; empty for all
	Modes       []string // data planes of the nodes
	Router      string   // lab.RouterFRR or lab.RouterBird
	IPv6        bool     // measure addresses of IPv6 rather than IPv4
	Connections int      // that ping all the time
	Repetitions int      // of each event
	Addresses   int      // that are announced and withdrawn at once
	// Annotations of the measured Services, as KEY=VALUE.
	Annotations []string
	Out         string // a Markdown file to write the tables into; "" prints them
	Section     string // which tables of that file
	Fairway     string // the program that is measured
	Stdout      io.Writer
	Version     string
	Log         *slog.Logger
}

// The ways by which an address is announced, or by which another program does it.
const (
	wayLayer2     = "l2"
	wayRouter     = "bgp"      // with graceful restart
	wayWatched    = "bfd"      // BGP, watched by BFD every 50 ms, three times
	wayAttached   = "attached" // BGP with a router that each node is plugged into
	wayKeepalived = "keepalived"
)

// AnnounceWays are all, in the order in which they are measured.
var AnnounceWays = []string{wayLayer2, wayRouter, wayWatched, wayAttached, wayKeepalived}

// Announce measures what clients notice of changes of who announces an address.
func Announce(ctx context.Context, o AnnounceOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	r := &announceRun{AnnounceOptions: o, began: time.Now()}
	var failed []error
	for _, mode := range o.Modes {
		if o.hasWay(wayLayer2) || o.hasWay(wayRouter) || o.hasWay(wayWatched) || o.hasWay(wayAttached) {
			if err := r.inLab(ctx, mode); err != nil {
				failed = append(failed, fmt.Errorf("measure mode %s: %w", mode, err))
			}
		}
	}
	if o.hasWay(wayKeepalived) && o.has("power") {
		if err := r.keepalived(ctx); err != nil {
			failed = append(failed, fmt.Errorf("measure keepalived: %w", err))
		}
	}
	return errors.Join(append(failed, r.write())...)
}

func (o *AnnounceOptions) check() error {
	for _, w := range o.Ways {
		if !slices.Contains(AnnounceWays, w) {
			return fmt.Errorf("--way: %q must be one of %s", w, strings.Join(AnnounceWays, ", "))
		}
	}
	for _, name := range o.Only {
		if !slices.Contains(announceNames(), name) {
			return fmt.Errorf("--only: %q must be one of %s", name, strings.Join(announceNames(), ", "))
		}
	}
	for _, a := range o.Annotations {
		if !strings.Contains(a, "=") {
			return fmt.Errorf("--annotation: %q must be KEY=VALUE", a)
		}
	}
	if o.Connections < 1 || o.Repetitions < 1 || o.Addresses < 1 {
		return fmt.Errorf("--connections %d --repetitions %d --addresses %d: must be greater than 0", o.Connections, o.Repetitions, o.Addresses)
	}
	return nil
}

func (o *AnnounceOptions) hasWay(way string) bool {
	return len(o.Ways) == 0 || slices.Contains(o.Ways, way)
}

func (o *AnnounceOptions) has(event string) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, event)
}

// announceRun is such a measurement under way.
type announceRun struct {
	AnnounceOptions
	began   time.Time
	results []announced
}

// announced is what was measured of an event by a way.
type announced struct {
	event event
	who   string // way and mode
	text  string
}

// inLab measures what nodes of a mode do, by layer 2 and with a router.
func (r *announceRun) inLab(ctx context.Context, mode string) (err error) {
	l, err := newAnnounceLab(ctx, r.AnnounceOptions, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var failed []error
	for _, way := range []string{wayLayer2, wayRouter, wayWatched, wayAttached} {
		if !r.hasWay(way) {
			continue
		}
		if err := l.use(ctx, way); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", way, err))
			continue
		}
		for _, e := range events() {
			if ctx.Err() != nil || !r.has(e.name) || !slices.Contains(e.ways, way) {
				continue
			}
			r.Log.Info("measuring", "event", e.name, "way", way, "mode", mode)
			text, err := e.measure(ctx, l, e)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s by %s: %w", e.name, way, err))
				continue
			}
			r.note(e, r.label(way, mode), text)
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// label says by which way and mode something was measured.
func (o *AnnounceOptions) label(way, mode string) string {
	names := map[string]string{wayLayer2: "L2", wayRouter: "BGP, " + o.Router, wayWatched: "BGP with BFD 50 x 3, " + o.Router, wayAttached: "BGP, " + o.Router + " that nodes are plugged into"}
	text := names[way] + ", " + mode
	if o.IPv6 {
		text += ", IPv6"
	}
	for _, a := range o.Annotations {
		text += ", " + a
	}
	return text
}

func (r *announceRun) note(e event, who, text string) {
	r.Log.Info("measured", "event", e.name, "client", who, "result", text)
	r.results = append(r.results, announced{e, who, text})
}

// announceLabName is that of the lab.
const announceLabName = "bench-announce"
