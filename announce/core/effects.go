package core

import (
	"log/slog"
	"net/netip"
)

// Effect is something that is to be done after an event.
type Effect interface{ effect() }

// What is to be done.
type (
	// Send sends an advert to all nodes of the link.
	Send struct{ Advert *Advert }
	// Ask asks nodes whether their kernels answer.
	Ask struct{ Nodes []string }
	// Refresh tells this node's kernel that there is an agent, and its number. KernelAnswers is to
	// be said then.
	Refresh struct{ Incarnation uint64 }
	// Claim is about an address that this node is about to answer for: questions of other machines
	// are to reach it.
	Claim struct{ Address netip.Addr }
	// Answer begins to answer for an address that was claimed.
	Answer struct {
		Address netip.Addr
		Epoch   uint32
	}
	// Release ends the answers, and the claim.
	Release struct{ Address netip.Addr }
	// Probe asks the link whether a machine has an address.
	Probe struct{ Address netip.Addr }
	// TellAll tells all machines that this node has an address.
	TellAll struct{ Address netip.Addr }
	// Lead has the packets of connections to an address that began at another node led there, but
	// for those that are this node's own. LeadFailed is to be said if that can't be done.
	Lead struct {
		Address netip.Addr
		Node    string
	}
	// EndLead ends that.
	EndLead struct {
		Address netip.Addr
		Node    string // "" if it isn't known any more
	}
	// Recount has this node's connections counted; see Count.
	Recount struct{}
	// Hurry has Wake called at once.
	Hurry struct{}
	// Changed says that Status is another one.
	Changed struct{}
	// Log writes a line.
	Log struct {
		Level slog.Level
		Text  string
		Args  []any
	}
)

func (Send) effect()    {}
func (Ask) effect()     {}
func (Refresh) effect() {}
func (Claim) effect()   {}
func (Answer) effect()  {}
func (Release) effect() {}
func (Probe) effect()   {}
func (TellAll) effect() {}
func (Lead) effect()    {}
func (EndLead) effect() {}
func (Recount) effect() {}
func (Hurry) effect()   {}
func (Changed) effect() {}
func (Log) effect()     {}

func (a *Announcer) do(e Effect) { a.effects = append(a.effects, e) }

// taken returns the effects of an event.
func (a *Announcer) taken() []Effect {
	list := a.effects
	a.effects = nil
	return list
}

func (a *Announcer) log(level slog.Level, text string, args ...any) { a.do(Log{level, text, args}) }

func (a *Announcer) send(adverts []*Advert) {
	for _, ad := range adverts {
		a.do(Send{ad})
	}
}

func (a *Announcer) ask(nodes []string) {
	if len(nodes) > 0 {
		a.do(Ask{nodes})
	}
}
