package explain

import (
	"fmt"
	"io"
	"strings"
)

// WriteRules writes each decision step by step, as one reads a chain of rules:
// what is matched, what it leads to, and with which share.
func (r *Report) WriteRules(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Answer)
	for _, v := range r.Views {
		for _, d := range v.Decisions {
			fmt.Fprintf(&b, "\non %s, packets from %s", orElse(v.Node, "any node"), originText[d.Origin])
			if d.Source.IsValid() {
				fmt.Fprintf(&b, " (%s)", d.Source)
			}
			fmt.Fprintln(&b, ":")
			d.rules(&b)
		}
	}
	for _, k := range r.Kernel {
		fmt.Fprintf(&b, "\nin the kernel of %s (%s):\n", k.Node, k.Mode)
		for _, o := range k.Objects {
			fmt.Fprintf(&b, "    %s\n", o)
		}
		for _, d := range k.Differences {
			fmt.Fprintf(&b, "  %s\n", d)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// rules writes one decision, numbered.
func (d Decision) rules(b *strings.Builder) {
	step := 0
	say := func(format string, args ...any) {
		step++
		fmt.Fprintf(b, " %d. %s\n", step, fmt.Sprintf(format, args...))
	}
	if d.Service == "" {
		say("destination %s: %s -> %s", d.Frontend, d.Reason, d.Action)
		return
	}
	say("destination %s: the %s of %s", d.Frontend, d.FrontendType, d.Service)
	if d.Sources != nil {
		say("source in %v, else dropped", d.Sources)
	}
	say("from %s -> pool %s", originText[d.Origin], d.Pool)
	if d.Action != "forwarded" {
		say("%s -> %s", d.Reason, d.Action)
		return
	}
	if d.Masquerade {
		say("mark for masquerading: the source becomes an address of the node")
	}
	say("choose %s:", d.Choice)
	for _, c := range d.Candidates {
		if c.Chosen {
			fmt.Fprintf(b, "    %5s -> %s%s\n", shareText(c), endpointText(c), d.seesText(c))
		}
	}
	if !d.Masquerade && !d.Direct {
		say("an endpoint that reaches itself is masqueraded (hairpin)")
	}
}
