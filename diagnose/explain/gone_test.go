package explain

import (
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/compile"
)

// TestGoneIsNoDifference: that an agent passes over an endpoint whose machine is gone is no
// difference from the API, which can't know; that it leaves out another one is.
func TestGoneIsNoDifference(t *testing.T) {
	at := netip.MustParseAddr("10.0.0.1")
	want := Decision{Service: "default/web", Candidates: []CandidateShare{{Addr: at, Port: 80, Chosen: true, Why: compile.Ready.String()}}}
	for why, differs := range map[compile.Choice]int{compile.MachineGone: 0, compile.NotReady: 1} {
		have := Decision{Candidates: []CandidateShare{{Addr: at, Port: 80, Why: why.String()}}}
		if got := backendDifferences(want, have); len(got) != differs {
			t.Errorf("%s: %q", why, got)
		}
	}
}
