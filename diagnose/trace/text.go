package trace

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes the report for people. Wide shows also steps that decide nothing.
func (r *Report) WriteText(out io.Writer, wide bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Answer)
	if r.Frontend.IsValid() {
		fmt.Fprintf(&b, "\n connection   %s > %s/%s", r.Client, r.Frontend, r.Protocol)
		if r.Service != "" {
			fmt.Fprintf(&b, "  %s", r.Service)
		}
		b.WriteByte('\n')
	}
	if r.Node != "" {
		fmt.Fprintf(&b, " node         %s (%s)\n", r.Node, orElse(r.Mode, "mode not known"))
	}
	if r.Endpoint != nil {
		fmt.Fprintf(&b, " endpoint     %s", r.Endpoint)
		if r.Endpoint.Elsewhere {
			b.WriteString(", another node")
		}
		b.WriteByte('\n')
	}
	if r.Source.IsValid() {
		fmt.Fprintf(&b, " masqueraded  the endpoint sees %s\n", r.Source)
	}
	for _, line := range r.Plane {
		fmt.Fprintf(&b, " %-12s %s\n", r.Mode, line)
	}
	for _, p := range r.Packets {
		p.text(&b, wide)
	}
	for _, d := range r.Drops {
		fmt.Fprintf(&b, " dropped      %s > %s at %s: %s\n", d.Source, d.Destination, orElse(orElse(d.Node, r.Node), "this node"), d.Reason)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, " note         %s\n", note)
	}
	for _, missing := range r.NotChecked {
		fmt.Fprintf(&b, " not checked  %s\n", missing)
	}
	if len(r.Next) > 0 {
		fmt.Fprintf(&b, "Next: %s\n", strings.Join(r.Next, "\n      "))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// text writes a packet's way.
func (p *Packet) text(b *strings.Builder, wide bool) {
	direction := "request"
	if p.Reply {
		direction = "answer"
	}
	if p.Node != "" {
		direction = "at " + p.Node
	}
	fmt.Fprintf(b, " %-12s %s  %s > %s", direction, p.What, p.Source, p.Destination)
	if p.In != "" {
		fmt.Fprintf(b, "  in %s", p.In)
	}
	switch {
	case p.Again == 1:
		b.WriteString(", sent again once")
	case p.Again > 1:
		fmt.Fprintf(b, ", sent again %d times", p.Again)
	}
	b.WriteByte('\n')
	hook := ""
	for i := range p.Steps {
		s := &p.Steps[i]
		if !wide && s.decidesNothing() {
			continue
		}
		shown := ""
		if s.Hook != hook {
			hook, shown = s.Hook, s.Hook
		}
		fmt.Fprintf(b, "   %-12s %s\n", shown, s)
	}
	fmt.Fprintf(b, "   %-12s %s\n", "", p.fate())
}

// decidesNothing reports whether the step is of interest to few: a chain that ends
// without a rule that decides, or bookkeeping of Fairway's own.
func (s *Step) decidesNothing() bool {
	return s.Rule == "" && (s.Verdict == "policy accept" || s.Verdict == "return") || s.Ours && s.Verdict == "continue"
}

// String is the step on a line.
func (s *Step) String() string {
	if s.Verdict == "translated" {
		return "translated: " + s.Rule
	}
	text := s.where()
	if s.Owner != "" && !s.Ours {
		text += " [" + s.Owner + "]"
	}
	text += ": "
	switch rule := strings.TrimSpace(strings.TrimSuffix(s.Rule, s.Verdict)); {
	case rule != "":
		text += rule + ": "
	case s.Rule == "" && s.Handle != 0:
		text += fmt.Sprintf("handle %d: ", s.Handle)
	}
	if s.Verdict == "drop" || s.Verdict == "policy drop" {
		return text + strings.ToUpper(s.Verdict)
	}
	return text + s.Verdict
}

// fate says where the packet went.
func (p *Packet) fate() string {
	switch {
	case p.Dropped() != nil:
		return "ends here"
	case p.Last == "input":
		return "for a process of this node"
	case p.Last == "postrouting":
		return "left by " + orElse(p.Out, "an interface")
	case p.Last == "":
		return "not seen again"
	}
	return "not seen again after " + p.Last
}
