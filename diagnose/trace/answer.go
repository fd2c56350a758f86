package trace

import (
	"fmt"
	"strings"
	"time"
)

// Conclude works out what became of the connection, once all is noted.
func (r *Report) Conclude() {
	first, outcome := r.first(false), r.outcome()
	if outcome == Answered {
		r.Drops = nil // of what came after
	}
	p, step := r.ended()
	switch {
	case step != nil && outcome != Answered:
		r.dropped(p, step)
	case first == nil && r.Result == nil:
		r.Outcome, r.Answer = Unseen, "NOT SEEN: no such connection came in time"
		r.Next = append(r.Next, "fairway trace "+r.Target+" --send")
	case outcome == Answered:
		r.Outcome, r.Answer = Answered, "ANSWERED by "+r.who()+r.took()
	case outcome == Refused:
		r.refused()
	case r.drop() != nil:
		r.droppedByKernel(r.drop())
	case r.lostPacket() != nil:
		r.lost(r.lostPacket())
	default:
		r.noAnswer(first)
	}
	if r.Outcome != Answered && r.Outcome != Unseen {
		r.Next = append(r.Next, "fairway doctor "+r.Target)
	}
}

// lostPacket is the first packet towards the endpoint that a node saw and that didn't
// leave it; nil if there is none.
func (r *Report) lostPacket() *Packet {
	for _, p := range r.Packets {
		if !p.Reply && !p.arrived() {
			return p
		}
	}
	return nil
}

// first is the first packet of a direction; nil if none was seen.
func (r *Report) first(reply bool) *Packet {
	for _, p := range r.Packets {
		if p.Reply == reply {
			return p
		}
	}
	return nil
}

// ended is the first packet that a rule took away, and the rule's step; nil if none
// did.
func (r *Report) ended() (*Packet, *Step) {
	for _, p := range r.Packets {
		if s := p.Dropped(); s != nil {
			return p, s
		}
	}
	return nil, nil
}

// outcome is how it ended for the client, or what the first answer says.
func (r *Report) outcome() Outcome {
	if r.Result != nil {
		return r.Result.Outcome
	}
	switch p := r.first(true); {
	case p == nil || !p.arrived():
		return NoAnswer
	case strings.Contains(p.What, "RST") || p.What == "ICMP":
		return Refused
	}
	return Answered
}

// dropped answers that a rule took a packet away.
func (r *Report) dropped(p *Packet, s *Step) {
	verb := "DROPPED"
	r.Outcome = Dropped
	rejects := strings.Contains(s.Rule, "reject") || strings.Contains(s.Rule, "REJECT")
	if rejects {
		verb, r.Outcome = "REFUSED", Refused
	}
	what := "a rule"
	if strings.HasPrefix(s.Verdict, "policy") {
		what = "the policy of a chain"
	}
	r.Answer = fmt.Sprintf("%s%s by %s %s: %s", verb, onNode(orElse(p.Node, r.Node)), what, s.whose(), s.where())
	if s.Rule != "" {
		r.Answer += ": " + s.Rule
	}
	switch {
	case s.Handle != 0 && s.Legacy:
		r.Answer += fmt.Sprintf(" (rule %d)", s.Handle)
	case s.Handle != 0:
		r.Answer += fmt.Sprintf(" (handle %d)", s.Handle)
	}
	if p.Reply {
		r.Answer += "; it was the answer"
	}
	if s.Ours && r.decision != nil && r.decision.Reason != "" {
		r.Answer += "; " + r.decision.Reason
	}
}

// refused answers that somebody said no.
func (r *Report) refused() {
	r.Outcome = Refused
	switch {
	case r.Endpoint != nil:
		r.Answer = "REFUSED by " + r.who() + r.took() + ": nothing listens there, or a rule on its way refuses it"
	case r.decision != nil && r.decision.Action == "refused":
		r.Answer = "REFUSED" + r.onNode() + " by Fairway: " + r.decision.Reason
	default:
		r.Answer = "REFUSED by " + r.who() + r.took()
	}
}

// lost answers that the kernel took the packet away without a rule.
func (r *Report) lost(p *Packet) {
	r.Outcome = Lost
	hook, why := p.Last, "while it was routed: no route, rp_filter, or forwarding is off"
	switch {
	case hook == "":
		hook, why = "its first hook", "before or in connection tracking, or by what nf_tables doesn't see"
	case hook == "forward" || hook == "output":
		why = "before it was sent"
	}
	_, to := p.End()
	r.Answer = fmt.Sprintf("LOST%s after %s, on its way to %s: no rule dropped it; the kernel did, %s", onNode(orElse(p.Node, r.Node)), hook, to, why)
}

// noAnswer answers that nothing came back.
func (r *Report) noAnswer(p *Packet) {
	r.Outcome = NoAnswer
	r.Answer = "NO ANSWER" + r.took()
	if r.Result != nil && r.Result.Error != "" {
		r.Answer += " (" + r.Result.Error + ")"
	}
	switch {
	case p == nil:
		r.Answer += ": nf_tables" + r.onNode() + " never saw it"
	case p.Last == "input":
		r.Answer += ": " + r.who() + " is" + r.onNode() + " and got it"
	default:
		r.Answer += fmt.Sprintf(": the packet left %s by %s to %s", orElse(r.Node, "this machine"), orElse(p.Out, "an interface"), r.who())
	}
	if reply := r.first(true); reply != nil {
		r.Answer += fmt.Sprintf("; an answer came (%s) and was last seen in %s", reply.What, orElse(reply.Last, "its first hook"))
	}
	if r.Endpoint != nil && r.Endpoint.Elsewhere {
		r.Next = append(r.Next, fmt.Sprintf("fairway trace %s --node %s", r.Endpoint.Address, r.Endpoint.Node))
	}
}

// who answered, or should have.
func (r *Report) who() string {
	if r.Endpoint != nil {
		return r.Endpoint.String()
	}
	return r.Frontend.String()
}

func (r *Report) onNode() string { return onNode(r.Node) }

func onNode(node string) string {
	if node == "" {
		return ""
	}
	return " on " + node
}

// took says how long it was, if this is known.
func (r *Report) took() string {
	if r.Result == nil {
		return ""
	}
	return " in " + r.Result.Took.Round(10*time.Microsecond).String()
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
