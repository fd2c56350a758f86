package doctor

import (
	"fmt"
	"strings"

	"github.com/fairway-net/fairway/compile"
)

// readyInForce finds FW102 by what agents say, where EndpointSlices can't be read. An
// endpoint on another node may be what a traffic policy leaves out, which is FW113 or FW114.
func (e *Evidence) readyInForce() []Finding {
	var names []string
	seen := map[string]bool{}
	for _, v := range e.Report.Views {
		if len(v.Served) > 0 {
			return nil // a node's own server answers
		}
		for _, d := range v.Decisions {
			if len(d.Candidates) == 0 && strings.HasSuffix(d.Pool, " local") {
				return nil // who tells no reasons doesn't tell of those on other nodes
			}
			for _, c := range d.Candidates {
				if c.Chosen || c.Why == compile.NotLocal.String() {
					return nil
				}
				name := fmt.Sprintf("%s is %s", c.Addr, c.Why)
				if !seen[name] && len(names) < mostNamed {
					names = append(names, name)
				}
				seen[name] = true
			}
		}
	}
	if len(seen) == 0 {
		return []Finding{{Code: NoEndpointReady, Grade: Proved, What: "no agent that answers knows an endpoint of the Service"}}
	}
	return []Finding{{Code: NoEndpointReady, Grade: Proved, What: fmt.Sprintf("none of %d endpoints takes new connections: %s", len(seen), strings.Join(names, ", "))}}
}
