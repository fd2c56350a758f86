package conntrack

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

// TestEvents: flows that begin and end are told of, in both families.
func TestEvents(t *testing.T) {
	inNamespace(t)
	events, err := Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	type told struct {
		flow  string
		ended bool
	}
	all := make(chan told, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- events.Run(ctx, func(f *Flow, ended bool) { all <- told{f.String() + " " + f.Backend.String(), ended} }, func() {})
	}()
	want := func(flow string, ended bool) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case got := <-all:
				if got == (told{flow, ended}) {
					return
				}
			case <-deadline:
				t.Fatalf("never told of %s, ended %t", flow, ended)
			}
		}
	}
	for _, c := range [][3]string{
		{"10.244.1.2:1000", "10.96.0.1:80", "10.244.2.2:8080"},
		{"[fd00::2]:1000", "[fd00:96::1]:80", "[fd00::3]:8080"},
	} {
		from, to, backend := netip.MustParseAddrPort(c[0]), netip.MustParseAddrPort(c[1]), netip.MustParseAddrPort(c[2])
		addFlow(t, model.UDP, from, to, backend)
		name := "udp " + c[0] + " > " + c[1] + " " + c[2]
		want(name, false)
		if err := Forget(model.UDP, from, to); err != nil {
			t.Fatal(err)
		}
		want(name, true)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
