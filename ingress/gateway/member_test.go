package gateway

import (
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/latest"
)

// TestOrders: a member is told which machines are gone, whenever that changes, and to end.
func TestOrders(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	known := &latest.Value[[]compile.Machine]{}
	s := &separate{process: &process{config: Config{Gone: known}, log: slog.New(slog.DiscardHandler)}}
	c := &child{separate: s, ending: make(chan struct{})}
	c.order(write)
	heard, ended := make(chan []compile.Machine), make(chan struct{})
	go obey(read, func(machines []compile.Machine) { heard <- machines }, func() { close(ended) })
	done := make(chan struct{})
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		c.config.followGone(done, c.gone)
	}()
	if m := <-heard; len(m) != 0 {
		t.Errorf("at first %v are gone", m)
	}
	address := netip.MustParseAddr("10.77.0.13")
	known.Set([]compile.Machine{{Name: "m3", Addresses: []netip.Addr{address}}})
	if m := <-heard; len(m) != 1 || m[0].Name != "m3" || len(m[0].Addresses) != 1 || m[0].Addresses[0] != address {
		t.Errorf("%v are gone", m)
	}
	known.Set(nil)
	if m := <-heard; len(m) != 0 {
		t.Errorf("in the end %v are gone", m)
	}
	close(done)
	<-followed
	c.end()
	<-ended
}
