package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
)

// fakeReader is a plane that tells what it is told to.
type fakeReader struct{ kernel.Reading }

func (f *fakeReader) Read(context.Context, kernel.Query) (kernel.Reading, error) {
	return f.Reading, nil
}

func TestPlaneMetrics(t *testing.T) {
	plane := &fakeReader{}
	m := newPlaneMetrics(func() PlaneReader { return plane }, slog.New(slog.DiscardHandler))
	show := func(name string, labels map[string]string, value float64) string {
		return fmt.Sprintf("%s %s%s=%v", name, labels["reason"], labels["map"]+labels["interface"], value)
	}
	if got := gathered(t, m, show); got != "" {
		t.Errorf("%q of a plane that tells nothing", got)
	}
	plane.Drops = []kernel.DropStats{{Reason: "no_port"}, {Reason: "table_full", Packets: 3}}
	plane.Strays = &kernel.Strays{Forwarded: 7, ForwardedAgain: 2, Reset: 1}
	plane.Maps = []kernel.MapUsage{{Map: "conns", Entries: 1, Size: 2, Limit: 4}}
	plane.Drivers = &kernel.Drivers{Interfaces: []kernel.Driver{{Interface: "eth0", XDP: true}, {Interface: "eth1", Why: "taken"}}, Forwarded: 5}
	want := "fairway_dropped_packets_total no_port=0, fairway_dropped_packets_total table_full=3, " +
		"fairway_map_entries conns=1, fairway_map_limit conns=4, fairway_map_size conns=2, " +
		"fairway_stray_connections_forwarded_total =7, fairway_stray_packets_forwarded_again_total =2, fairway_stray_packets_reset_total =1, " +
		"fairway_xdp_forwarded_packets_total =5, fairway_xdp_interface eth0=1, fairway_xdp_interface eth1=0"
	if got := gathered(t, m, show); got != want {
		t.Errorf("%s, expected %s", got, want)
	}
}
