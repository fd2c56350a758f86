package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

const (
	// mostEchoed is to how many endpoints large packets are sent.
	mostEchoed = 8
	// hairpinTries is how often a pod tries to reach itself, for each endpoint that
	// could be chosen in its place.
	hairpinTries = 3
	// mostTries bounds that.
	mostTries = 24
)

// checkLargePackets finds FW128: endpoints whose machine answers small pings and not
// large ones, from a pod of the node where there is one, for its packets are forwarded. A
// machine that answers none proves nothing. A large one is lost twice before it counts.
func checkLargePackets(ctx context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, n := range e.probing() {
		list = append(list, e.largeFrom(ctx, n)...)
	}
	return list
}

// largeFrom sends large packets from one node to some endpoints, all at once.
func (e *Evidence) largeFrom(ctx context.Context, n *Node) []Finding {
	var addrs []netip.Addr
	for _, to := range e.tcpEndpoints() {
		if !slices.Contains(addrs, to.Addr()) && len(addrs) < mostEchoed {
			addrs = append(addrs, to.Addr())
		}
	}
	lost := make([]string, len(addrs))
	var group sync.WaitGroup
	for i, to := range addrs {
		group.Go(func() { lost[i] = e.losesLarge(ctx, n, to) })
	}
	group.Wait()
	var list []Finding
	for i, to := range addrs {
		if lost[i] != "" {
			list = append(list, Finding{Code: LargePacketsLost, Grade: Likely, What: n.on(fmt.Sprintf("%s answers small packets, and not those as large as the route allows: %s", to, lost[i]))})
		}
	}
	return list
}

// losesLarge says how large packets to an address are lost; "" if they aren't.
func (e *Evidence) losesLarge(ctx context.Context, n *Node, to netip.Addr) (lost string) {
	for _, client := range append(e.clients(n, to), podClient{}) {
		switch n.Probe.Echo(ctx, client.addr, to, false) {
		case "": // it isn't on this machine
			continue
		case "ok":
		default:
			return ""
		}
		for range 2 {
			if lost = n.Probe.Echo(ctx, client.addr, to, true); !strings.HasPrefix(lost, "no answer") {
				return ""
			}
		}
		if client.addr.IsValid() {
			lost += ", from " + client.name
		}
		return lost
	}
	return ""
}

// isEndpoint reports whether the pod that asks is one of the endpoints.
func isEndpoint(e *Evidence) (bool, string) {
	if can, why := canConnect(e); !can {
		return false, why
	}
	return e.clientPod() != nil && e.clientNode() != nil && len(e.ownPorts()) > 0, ""
}

// ownPorts are the frontends that may lead the pod that asks back to itself: its own
// port, by frontend, and among how many endpoints.
func (e *Evidence) ownPorts() []hairpin {
	var list []hairpin
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			at, proto, _ := strings.Cut(d.Frontend, "/")
			front, err := netip.ParseAddrPort(at)
			if err != nil || proto != "tcp" || d.Action != "forwarded" {
				continue
			}
			h := hairpin{front: front}
			for _, c := range d.Candidates {
				if !c.Chosen {
					continue
				}
				h.among++
				if c.Addr == d.Source {
					h.own = netip.AddrPortFrom(c.Addr, c.Port)
				}
			}
			if h.own.IsValid() && !slices.Contains(list, h) {
				list = append(list, h)
			}
		}
	}
	return list
}

type hairpin struct {
	front, own netip.AddrPort
	among      int // endpoints
}

// checkHairpin finds FW125.
func checkHairpin(ctx context.Context, e *Evidence) []Finding {
	var list []Finding
	probe := e.clientNode().Probe
	for _, h := range e.ownPorts() {
		if probe.ConnectFrom(ctx, h.own.Addr(), h.own) != "ok" {
			continue // not here, or it doesn't answer itself at all
		}
		tries := 1
		if h.among > 1 {
			tries = min(hairpinTries*h.among, mostTries)
		}
		lost := make([]bool, tries)
		var group sync.WaitGroup
		for i := range lost {
			group.Go(func() { lost[i] = probe.ConnectFrom(ctx, h.own.Addr(), h.front) != "ok" })
		}
		group.Wait()
		failed := 0
		for _, l := range lost {
			if l {
				failed++
			}
		}
		switch {
		case failed == 0:
		case h.among == 1:
			list = append(list, Finding{Code: HairpinLost, Grade: Proved, What: fmt.Sprintf("%s answers the pod at %s, and not through %s", h.own.Addr(), h.own, h.front)})
		case failed < tries:
			list = append(list, Finding{Code: HairpinLost, Grade: Likely, What: fmt.Sprintf("%d of %d connections of the pod to %s were lost; it is one of %d endpoints itself", failed, tries, h.front, h.among)})
		}
	}
	return list
}

func hasFlows(e *Evidence) (bool, string) {
	if views, _ := hasViews(e); !views || e.Service == nil {
		return false, ""
	}
	return e.NoFlows == "" && len(e.Agents) > 0, e.NoFlows
}

// checkFlows finds FW127. TCP connections to endpoints that are gone may be asked
// for, and end by themselves: of these only untranslated ones count.
func checkFlows(_ context.Context, e *Evidence) []Finding {
	fronts := map[string]bool{}
	endpoints := e.Report.Taking()
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			fronts[d.Frontend] = fronts[d.Frontend] || d.Action == "forwarded"
		}
	}
	var list []Finding
	for _, f := range e.Flows {
		if !fronts[f.Frontend.String()+"/"+f.Proto] || len(list) == mostNamed {
			continue
		}
		switch {
		case f.Frontend == f.Backend:
			list = append(list, Finding{Code: StaleFlow, Grade: Proved, What: fmt.Sprintf("%s: the %s flow from %s to %s is not translated", f.Node, f.Proto, f.Client, f.Frontend)})
		case f.Proto == "udp" && !endpoints[f.Backend]:
			list = append(list, Finding{Code: StaleFlow, Grade: Proved, What: fmt.Sprintf("%s: the udp flow from %s to %s leads to %s, which is no endpoint", f.Node, f.Client, f.Frontend, f.Backend)})
		}
	}
	return list
}
