package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// add takes in what nodes make of the question, and answers it.
func (r *Report) add(objects *Objects, views []View) {
	r.Views = merge(views)
	if r.shown = r.Views; r.From.Kind == "" {
		r.shown = mergeForText(views)
	}
	r.nameService(objects)
	if r.inForce = objects.NoSlices != ""; r.inForce {
		r.endpointsInForce(objects)
		if len(r.Views) == 0 {
			r.Answer, r.Outcome = r.unseen(), OutcomeUnknown
			return
		}
	}
	var actions []string
	for _, v := range r.Views {
		for _, d := range v.Decisions {
			action := d.Action
			if v.serves(d) {
				action = actionNames[model.Forward] // to the node itself
			}
			if !slices.Contains(actions, action) {
				actions = append(actions, action)
			}
			r.noteMode(v, d)
		}
	}
	lines := r.lines()
	r.Answer, r.Outcome = strings.Join(lines, "\n"), OutcomeNot
	switch {
	case len(lines) == 0:
		r.Answer = r.withoutPort(objects)
	case len(actions) == 1 && actions[0] == actionNames[model.Forward]:
		r.Outcome = OutcomeForwarded
		return
	}
	if r.Service != nil {
		r.Next = append(r.Next, "fairway doctor svc/"+r.Service.Name+" -n "+r.Service.Namespace)
	}
}

// noteMode says what a node's mode does otherwise, and what its agent doesn't say.
func (r *Report) noteMode(v View, d Decision) {
	unsaid := fmt.Sprintf("whether endpoints see the client's address: the agent of %s doesn't say", v.Node)
	if v.Mode != "" && d.Action == actionNames[model.Forward] && d.ClientAddress == "" && !slices.Contains(r.NotChecked, unsaid) {
		r.NotChecked = append(r.NotChecked, unsaid)
	}
	for _, o := range d.Otherwise {
		if note := fmt.Sprintf("%s mode: %s", v.Mode, o); !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
}

// withoutPort answers where the Service hasn't the port or protocol that was given.
func (r *Report) withoutPort(objects *Objects) string {
	if r.Service == nil {
		return "no Service has this port"
	}
	service := objects.Service(r.Service.Namespace, r.Service.Name)
	if len(r.target.Keys(service, r.From)) > 0 { // an agent's view without decisions
		return r.Service.String() + ": NOT IN FORCE: agents have nothing in force yet"
	}
	var have []string
	for _, p := range service.Spec.Ports {
		text := number(p.Port) + "/" + protocol(p.Protocol).String()
		if p.Name != "" {
			text = p.Name + " (" + text + ")"
		}
		have = append(have, text)
	}
	wanted := r.target.Port
	if r.target.Proto != 0 {
		wanted += "/" + r.target.Proto.String()
	}
	return fmt.Sprintf("%s has no port %s: it has %s", r.Service, wanted, strings.Join(have, ", "))
}

// unseen is the answer where neither the API nor an agent says what becomes of packets.
func (r *Report) unseen() string {
	what := r.Target
	if r.Service != nil {
		what = r.Service.String()
	}
	return what + ": COULD NOT TELL: its endpoints can't be read, and no agent answers that could be asked"
}

// said is a line of the answer, with the nodes that say it.
type said struct {
	Decision
	view  View
	line  string
	nodes []string
}

// lines are the answer. Where nodes say different things of the same packet, lines name them.
func (r *Report) lines() []string {
	var list []said
	for _, v := range r.Views {
		for _, d := range v.Decisions {
			line := r.line(d, v, nil)
			i := slices.IndexFunc(list, func(s said) bool { return s.line == line })
			switch {
			case i < 0:
				list = append(list, said{d, v, line, []string{v.Node}})
			case !slices.Contains(list[i].nodes, v.Node): // two packets may be of one origin
				list[i].nodes = append(list[i].nodes, v.Node)
			}
		}
	}
	var lines []string
	for i, s := range list {
		if slices.ContainsFunc(list, func(o said) bool { return o.line != s.line && o.Frontend == s.Frontend && o.Origin == s.Origin }) {
			list[i].line = r.line(s.Decision, s.view, s.nodes)
		}
		lines = append(lines, list[i].line)
	}
	return lines
}

// line is the answer of one decision, on nodes if that is to be said.
func (r *Report) line(d Decision, v View, nodes []string) string {
	who := d.Frontend
	if d.Service != "" {
		who = d.Service + " " + d.Frontend
	}
	if r.From.Kind == "" {
		who += ", from " + originText[d.Origin]
	}
	if len(nodes) > 0 && d.Action != actionNames[model.Pass] && !v.serves(d) { // which name the node anyway
		who += ", on " + strings.Join(nodes, ", ")
	}
	if v.serves(d) {
		lets := ""
		if d.Origin == model.FromOutside.String() {
			lets = ", if it lets the client ask"
		}
		who = fmt.Sprintf("%s: ANSWERED by the server on %s itself%s; should it fail", who, v.Node, lets)
	}
	switch d.Action {
	case actionNames[model.Forward]:
		chosen := 0
		for _, c := range d.Candidates {
			if c.Chosen {
				chosen++
			}
		}
		text := fmt.Sprintf("%s: FORWARDED to %s", who, oneOf(chosen, d.Choice))
		if d.ClientAddress != "" {
			text += ", " + d.ClientAddress
		}
		return text
	case actionNames[model.Pass]:
		return fmt.Sprintf("%s: NOT A SERVICE on %s: %s", who, v.Node, d.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", who, strings.ToUpper(d.Action), d.Reason)
}

var originText = map[string]string{"pod": "a pod", "node": "the node itself", "outside": "outside"}

func oneOf(n int, choice string) string {
	if n == 1 {
		return "its only endpoint"
	}
	return fmt.Sprintf("one of %d endpoints, %s", n, choice)
}
