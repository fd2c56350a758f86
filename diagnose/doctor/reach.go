package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// mostProbed is how many endpoints are tried.
const mostProbed = 16

// checkEndpoints finds FW103, FW105 and FW129: endpoints that refuse connections or
// can't be reached. All are tried at once.
func checkEndpoints(ctx context.Context, e *Evidence) []Finding {
	targets := e.tcpEndpoints()
	results := make([]string, len(targets))
	var group sync.WaitGroup
	for i, to := range targets {
		group.Go(func() { results[i] = e.Probe.Connect(ctx, to) })
	}
	group.Wait()
	var list []Finding
	for i, to := range targets {
		switch results[i] {
		case "ok":
		case "refused":
			list = append(list, e.refused(to))
		case "no route to host", "network is unreachable":
			list = append(list, Finding{Code: "FW129", Grade: Proved, What: fmt.Sprintf("this machine has no way to %s: %s", to, results[i])})
		default:
			list = append(list, Finding{Code: "FW103", Grade: Note, What: fmt.Sprintf("%s can't be reached from this machine: %s", to, results[i])})
		}
	}
	return list
}

// refused says why an endpoint refuses connections.
func (e *Evidence) refused(to netip.AddrPort) Finding {
	if at := e.Probe.AtLoopback(to); at.IsValid() {
		return Finding{Code: "FW105", Grade: Proved, What: fmt.Sprintf("%s refuses connections: the program listens at %s only", to, at)}
	}
	return Finding{Code: "FW103", Grade: Proved, What: fmt.Sprintf("%s refuses connections", to)}
}

// tcpEndpoints are the endpoints that take new TCP connections.
func (e *Evidence) tcpEndpoints() []netip.AddrPort {
	var list []netip.AddrPort
	seen := map[netip.AddrPort]bool{}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			for _, c := range d.Candidates {
				to := netip.AddrPortFrom(c.Addr, c.Port)
				if c.Chosen && strings.HasSuffix(d.Frontend, "/tcp") && !seen[to] && len(list) < mostProbed {
					seen[to] = true
					list = append(list, to)
				}
			}
		}
	}
	return list
}
