package follow

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/internal/nftrace"
)

// watch waits for a connection that somebody makes, and follows it.
func (t *tracer) watch(ctx context.Context) error {
	if !t.sees() {
		return fmt.Errorf("--send: in %s mode only a connection of trace's own can be followed, since packets are translated before netfilter sees them; fairway flows -f shows those of others", t.report.Mode)
	}
	var flows []nftrace.Flow
	for _, k := range t.keys {
		client := netip.AddrPortFrom(t.question.From.Addr, 0)
		if t.question.From.Kind == "node" {
			client = netip.AddrPort{} // it has addresses that the API doesn't name
		}
		flows = append(flows, nftrace.Flow{Proto: k.Proto, Client: client, Frontend: netip.AddrPortFrom(k.Addr, k.Port)})
	}
	session, err := t.open(ctx, flows)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.request.Say, "fairway: waiting %s for a connection to %s; --send makes one\n", t.request.Wait, t.question.Typed)
	w := watched{until: time.Now().Add(t.request.Wait), timeout: t.request.Timeout, replies: map[int][]nftrace.Event{}}
	err = t.collect(session, func() bool {
		for ; w.read < len(t.events); w.read++ {
			w.look(t.events[w.read])
		}
		return ctx.Err() != nil || time.Now().After(w.until)
	})
	t.events = w.kept
	if w.begins != nil {
		t.report.Began = w.began
		for _, k := range t.keys {
			if at := netip.AddrPortFrom(k.Addr, k.Port); at == w.begins.Destination && uint8(k.Proto) == w.begins.Proto {
				t.connection(k.Proto, w.begins.Source, at)
			}
		}
	}
	if closing := session.Close(); err == nil {
		err = closing
	}
	return err
}

// watched picks the first connection out of what the session tells.
type watched struct {
	until   time.Time
	timeout time.Duration
	read    int // of the events
	begins  *nftrace.Header
	began   time.Time
	own     map[int]bool // packets of the connection
	kept    []nftrace.Event
	replies map[int][]nftrace.Event // of packets that may be its answers
}

// look takes an event, if it is one of the connection. What came back, or that the
// request was dropped, is the end.
func (w *watched) look(e nftrace.Event) {
	if e.Passed == nftrace.Begins && !e.Reply && e.Header != nil {
		if w.begins == nil {
			w.begins, w.own = e.Header, map[int]bool{}
			w.began, w.until = time.Now(), time.Now().Add(w.timeout)
		}
		w.own[e.Packet] = e.Header.Source == w.begins.Source && e.Header.Destination == w.begins.Destination
	}
	if w.begins == nil {
		return
	}
	if e.Reply && !w.own[e.Packet] {
		w.replies[e.Packet] = append(w.replies[e.Packet], e)
		if e.Header != nil && e.Header.Destination == w.begins.Source {
			w.own[e.Packet] = true
			w.kept = append(w.kept, w.replies[e.Packet]...)
		}
	} else if w.own[e.Packet] {
		w.kept = append(w.kept, e)
	}
	if w.own[e.Packet] && (e.Verdict == "drop" || e.Reply && (e.Passed == "input" || e.Passed == "postrouting")) {
		w.until = time.Now()
	}
}
