package doctor

import (
	"slices"
	"testing"
)

// TestLossesAreSaidOnce: what is true of several nodes, frontends and clients is one finding, and
// what is true of some of them isn't said of the others.
func TestLossesAreSaidOnce(t *testing.T) {
	var everywhere []loss
	for _, node := range []string{"n1", "n2", "n3"} {
		for _, frontend := range []string{"10.96.0.17:80/tcp", "[fd00:96::17]:80/tcp"} {
			for _, origin := range []string{"node", "pod"} {
				everywhere = append(everywhere, loss{NoLocalEndpointInside, Note, frontend, origin, []string{node}})
			}
		}
	}
	few := slices.DeleteFunc(slices.Clone(everywhere), func(l loss) bool {
		return l.nodes[0] == "n3" && l.origins == "pod" || l.nodes[0] == "n2" && l.frontends != "10.96.0.17:80/tcp"
	})
	outside := loss{NoLocalEndpointOutside, Proved, "10.77.0.1:80/tcp", "outside", []string{"n1"}}
	for name, c := range map[string]struct {
		lost []loss
		want []string
	}{
		"none": {nil, nil},
		"everywhere": {append(everywhere, outside), []string{
			"FW113 10.96.0.17:80/tcp, [fd00:96::17]:80/tcp: no endpoint on the node is ready, and packets from node or pod may go to no other (n1, n2, n3)",
			"FW114 10.77.0.1:80/tcp: no endpoint on the node is ready, and packets from outside may go to no other (n1)",
		}},
		"of some": {few, []string{
			"FW113 10.96.0.17:80/tcp: no endpoint on the node is ready, and packets from node or pod may go to no other (n1, n2)",
			"FW113 [fd00:96::17]:80/tcp: no endpoint on the node is ready, and packets from node or pod may go to no other (n1)",
			"FW113 10.96.0.17:80/tcp, [fd00:96::17]:80/tcp: no endpoint on the node is ready, and packets from node may go to no other (n3)",
		}},
	} {
		var got []string
		for _, f := range findingsOf(c.lost) {
			got = append(got, f.Code.String()+" "+f.text())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
