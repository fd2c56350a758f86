package userspace

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

// monotonic reports whether a time is told by the clock that nobody sets; its
// text says so (see time.Time.String).
func monotonic(at time.Time) bool { return strings.Contains(at.String(), " m=") }

// TestClocksThatAreSet: what is remembered of clients for a time is so for that
// long, however the clock is set meanwhile, also by the next relay, which is told
// over a wire.
func TestClocksThatAreSet(t *testing.T) {
	x := &session{}
	x.used()
	if at := x.expires(&relay{udpUnanswered: time.Minute}); !monotonic(at) || time.Until(at) > time.Minute {
		t.Errorf("a UDP session ends at %s", at)
	}

	p := &model.Pool{ID: model.PoolID{Name: "p", Proto: model.TCP}, Affinity: time.Hour, Backends: []model.Backend{{Addr: netip.MustParseAddr("10.0.0.1"), Port: 1, Weight: 1}}}
	client := netip.MustParseAddr("192.0.2.1")
	old := newBalancer("")
	used := time.Now().Add(-10 * time.Minute)
	old.now = func() time.Time { return used }
	if _, ok := old.pick(p, client, nil); !ok {
		t.Fatal("no backend")
	}
	old.now = time.Now
	text, err := json.Marshal(old.memories())
	if err != nil {
		t.Fatal(err)
	}
	var list []remembered
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Fatalf("handed over: %+v", list)
	}
	next := newBalancer("")
	next.remember(list)
	a := next.pools[p.ID].clients[client]
	if since := time.Since(a.last).Round(time.Minute); !monotonic(a.last) || since != 10*time.Minute {
		t.Errorf("the next relay takes the client for seen %s ago, at %s", since, a.last)
	}
}
