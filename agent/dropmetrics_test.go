package agent

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
)

// fakeDropper is a plane that drops packets.
type fakeDropper []kernel.Drop

func (f fakeDropper) Drops(context.Context) ([]kernel.Drop, error) { return f, nil }

func TestDropMetrics(t *testing.T) {
	var plane dataplane.Dropper
	m := newDropMetrics(func() dataplane.Dropper { return plane }, slog.New(slog.DiscardHandler))
	show := func(name string, labels map[string]string, value float64) string {
		return fmt.Sprintf("%s %s=%v", name, labels["reason"], value)
	}
	if got := gathered(t, m, show); got != "" {
		t.Errorf("%q of a plane that doesn't say", got)
	}
	plane = fakeDropper{{Reason: "no_port"}, {Reason: "table_full", Packets: 3}}
	want := "fairway_dropped_packets_total no_port=0, fairway_dropped_packets_total table_full=3"
	if got := gathered(t, m, show); got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}
