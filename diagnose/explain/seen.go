package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/model"
)

// Asker asks the agent of a node what it makes of packets. ErrNoAgent says that
// there is none to be reached from here.
type Asker func(node string, keys []model.Key, from Source) (View, error)

// ErrNoAgent says that no agent of a node can be reached.
var ErrNoAgent = errors.New("no agent of it can be reached from here")

// ErrSaid says that the report says elsewhere why an agent didn't answer.
var ErrSaid = errors.New("it doesn't answer")

// mostNotAsked is how many nodes are named whose agent was not asked.
const mostNotAsked = 3

// seen is a node's view as its agent has it. Where no agent answers, the view
// stays what follows from the API, and the report says so. compare notes where they differ.
func (r *Report) seen(ask Asker, api View, keys []model.Key, from Source, compare bool) View {
	v, err := ask(api.Node, keys, from)
	switch {
	case errors.Is(err, ErrSaid):
		return api
	case errors.Is(err, ErrNoAgent):
		r.notAsked++
		if r.notAsked <= mostNotAsked {
			r.NotChecked = append(r.NotChecked, fmt.Sprintf("agent of %s: %v; what is said of this node follows from the API", orElse(api.Node, "any node"), err))
		}
		return api
	case err != nil:
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("agent of %s: %v; what is said of this node follows from the API", api.Node, err))
		return api
	}
	if !compare {
		return v // which the API's isn't made to match
	}
	v.Differs = differences(api, v)
	for _, d := range v.Differs {
		r.Notes = append(r.Notes, fmt.Sprintf("the agent of %s differs from the API: %s", v.Node, d))
	}
	return v
}

// differences are what an agent's view says otherwise than the API's, in words.
func differences(api, agent View) []string {
	if len(agent.Decisions) == 0 && len(api.Decisions) > 0 {
		return []string{"it has nothing in force yet"}
	}
	var list []string
	for _, want := range api.Decisions {
		have := agent.decision(want)
		switch {
		case agent.serves(want): // it leaves out its own server, among the endpoints of the API
		case have == nil:
			list = append(list, fmt.Sprintf("%s from %s: no answer", want.Frontend, originText[want.Origin]))
		case want.Action == actionNames[model.Pass] && have.Action == actionNames[model.Refuse] && have.Service == "":
			// The agent knows the ranges of cluster IPs, in which it refuses what nobody serves.
		case have.Action != want.Action:
			list = append(list, fmt.Sprintf("%s from %s is %s, not %s", want.Frontend, originText[want.Origin], have.Action, want.Action))
		default:
			list = append(list, backendDifferences(want, *have)...)
		}
	}
	return unique(list)
}

// decision is the one on the same packet.
func (v View) decision(of Decision) *Decision {
	for i, d := range v.Decisions {
		if d.Frontend == of.Frontend && d.Origin == of.Origin {
			return &v.Decisions[i]
		}
	}
	return nil
}

// backendDifferences names the endpoints that only one of two takes.
func backendDifferences(want, have Decision) []string {
	var list []string
	wanted, had := want.backends(), have.backends()
	for at := range wanted {
		if !had[at] && !have.passesOver(at) {
			list = append(list, fmt.Sprintf("%s: endpoint %s is not used", want.Service, at))
		}
	}
	for at := range had {
		if !wanted[at] {
			list = append(list, fmt.Sprintf("%s: endpoint %s is still used", want.Service, at))
		}
	}
	return list
}

// passesOver reports whether the agent leaves an endpoint out for what the API doesn't know: its
// machine is gone, as its peers on the link agree.
func (d Decision) passesOver(at netip.AddrPort) bool {
	return slices.ContainsFunc(d.Candidates, func(c CandidateShare) bool {
		return !c.Chosen && netip.AddrPortFrom(c.Addr, c.Port) == at && c.Why == compile.MachineGone.String()
	})
}

func (d Decision) backends() map[netip.AddrPort]bool {
	list := map[netip.AddrPort]bool{}
	for _, c := range d.Candidates {
		if c.Chosen {
			list[netip.AddrPortFrom(c.Addr, c.Port)] = true
		}
	}
	return list
}

// unique sorts texts and leaves each once.
func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// Taking are the endpoints that take connections, new ones or those they have.
func (r *Report) Taking() map[netip.AddrPort]bool {
	list := map[netip.AddrPort]bool{}
	for _, v := range r.Views {
		for _, d := range v.Decisions {
			for _, c := range d.Candidates {
				if c.Chosen || c.Draining {
					list[netip.AddrPortFrom(c.Addr, c.Port)] = true
				}
			}
		}
	}
	return list
}
