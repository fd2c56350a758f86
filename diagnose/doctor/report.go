package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairway-net/fairway/diagnose/explain"
)

const schemaVersion = explain.SchemaVersion

// Report is what the checks found.
type Report struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // "Diagnosis"
	Target     string   `json:"target,omitempty"`
	Service    string   `json:"service,omitempty"` // "namespace/name", if the target is of one
	Results    []Result `json:"results"`
	Skipped    []string `json:"skipped,omitempty"`    // what follows from another finding
	NotChecked []string `json:"notChecked,omitempty"` // and why
}

// Result is the outcome of one check; all is well if it has no findings.
type Result struct {
	Group    string    `json:"group"`
	Check    string    `json:"check"`
	Nodes    []string  `json:"nodes,omitempty"` // that it speaks of
	Findings []Finding `json:"findings,omitempty"`
}

// MarshalText has JSON name grades as people do.
func (g Grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (g *Grade) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGrade(string(text))
	return err
}

// ParseGrade reads note, likely or proved.
func ParseGrade(text string) (Grade, error) {
	for _, g := range []Grade{Note, Likely, Proved} {
		if g.String() == text {
			return g, nil
		}
	}
	return 0, fmt.Errorf("--fail-on: %q must be note, likely or proved", text)
}

func (r *Report) has(code Code) bool {
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Code == code && f.Grade > Note {
				return true
			}
		}
	}
	return false
}

// Worst is the surest finding's grade; false if there is none.
func (r *Report) Worst() (Grade, bool) {
	worst, any := Note, false
	for _, result := range r.Results {
		for _, f := range result.Findings {
			worst, any = max(worst, f.Grade), true
		}
	}
	return worst, any
}

// WriteText writes the report for people: a line for each check, the findings
// with their fixes, and what wasn't checked.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	problems, notes, well := 0, 0, 0
	first := ""
	for _, result := range r.Results {
		if len(result.Findings) == 0 {
			well++
			fmt.Fprintf(&b, "%-6s ok    %s%s\n", result.Group, result.Check, result.on())
		}
		for _, f := range result.Findings {
			status := "FAIL"
			if f.Grade == Note {
				status = "note"
				notes++
			} else {
				problems++
				first = orElse(first, f.Code.String())
			}
			fmt.Fprintf(&b, "%-6s %s  %s %s: %s\n", result.Group, status, f.Code, f.Grade, f.text())
			if f.Grade > Note {
				fmt.Fprintf(&b, "             fix: %s\n", f.Fix)
			}
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "skipped      %s\n", s)
	}
	for _, n := range r.NotChecked {
		fmt.Fprintf(&b, "not checked  %s\n", n)
	}
	fmt.Fprintf(&b, "%s, %s, %d ok, %d not checked.", count(problems, "problem"), count(notes, "note"), well, len(r.NotChecked))
	if first != "" {
		fmt.Fprintf(&b, "  fairway doctor --explain %s", first)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(out, b.String())
	return err
}

// on are the nodes that a check that found nothing speaks of.
func (r *Result) on() string {
	if len(r.Nodes) == 0 {
		return ""
	}
	return " (" + join(r.Nodes) + ")"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
