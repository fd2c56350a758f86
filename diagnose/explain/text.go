package explain

import (
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"text/tabwriter"
)

// mostListed is how many endpoints the text lists before it says "and N more".
const mostListed = 20

// WriteText writes the report for people. Wide lists every endpoint.
func (r *Report) WriteText(out io.Writer, wide bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.Answer)
	if s := r.Service; s != nil {
		fmt.Fprintf(&b, "\n Service      %s", s)
		for _, part := range [][2]string{{"", s.Type}, {"selector", s.Selector}, {"internalTrafficPolicy", s.Internal}, {"externalTrafficPolicy", s.External}, {"externalName", s.ExternalName}} {
			if part[1] != "" {
				fmt.Fprintf(&b, "  %s", strings.TrimSpace(part[0]+" "+part[1]))
			}
		}
		b.WriteByte('\n')
		if len(s.Addresses) > 0 {
			fmt.Fprintf(&b, " addresses    %s\n", joinAddrs(s.Addresses))
		}
	}
	r.decisionsText(&b, wide)
	for _, k := range r.Kernel {
		k.text(&b, wide)
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

// decisionsText writes each pool once, under the frontends and origins that lead
// to it.
func (r *Report) decisionsText(b *strings.Builder, wide bool) {
	seen := map[string]bool{}
	for _, v := range r.shown {
		for _, d := range v.Decisions {
			key := v.Node + "|" + d.Frontend + "|" + d.Pool + "|" + d.Action
			if seen[key] {
				continue
			}
			seen[key] = true
			fmt.Fprintf(b, " frontend     %s  %s", d.Frontend, orElse(d.FrontendType, "no Service's"))
			if v.Mode != "" {
				fmt.Fprintf(b, "  as seen by the agent on %s (%s)", v.Node, v.Mode)
			} else {
				fmt.Fprintf(b, "  as seen on %s", orElse(v.Node, "any node"))
			}
			if d.Sources != nil {
				fmt.Fprintf(b, "  open to %v only", d.Sources)
			}
			b.WriteByte('\n')
			if poolKey := v.Node + "|" + d.Pool; d.Pool != "" && !seen[poolKey] {
				seen[poolKey] = true
				r.candidatesText(b, d, wide)
			}
		}
	}
}

func (r *Report) candidatesText(b *strings.Builder, d Decision, wide bool) {
	list := d.Candidates
	if len(list) == 0 && r.inForce {
		fmt.Fprintf(b, " endpoints    none that the agent knows\n")
		return
	}
	if len(list) == 0 {
		fmt.Fprintf(b, " endpoints    none: no EndpointSlice lists any\n")
		return
	}
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, " ENDPOINT\tPOD\tNODE\tSHARE\tWHY")
	for i, c := range list {
		if i == mostListed && !wide {
			fmt.Fprintf(w, " and %d more: -o wide\t\t\t\t\n", len(list)-i)
			break
		}
		e := r.endpoint(c)
		why := c.Why
		if !c.Chosen && e.Detail != "" {
			why += " " + e.Detail
		}
		if c.Draining {
			why += "; keeps the connections it has"
		}
		if r.From.Kind != "" { // which is one origin
			why += d.seesText(c)
		}
		fmt.Fprintf(w, " %s\t%s\t%s\t%s\t%s\n", endpointText(c), orElse(e.Pod, "-"), orElse(e.Node, "-"), shareText(c), why)
	}
	_ = w.Flush() // into memory
}

func endpointText(c CandidateShare) string {
	if c.Port == 0 {
		return c.Addr.String()
	}
	return netip.AddrPortFrom(c.Addr, c.Port).String()
}

func shareText(c CandidateShare) string {
	if !c.Chosen {
		return "-"
	}
	if percent := c.Share * 100; percent >= 10 || percent == math.Trunc(percent) {
		return fmt.Sprintf("%.0f%%", percent)
	}
	return fmt.Sprintf("%.1f%%", c.Share*100)
}

func joinAddrs(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
