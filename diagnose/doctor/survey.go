package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Survey is what was found of many Services.
type Survey struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"` // "Survey"
	Services   int             `json:"services"`
	Found      []ServiceReport `json:"found"` // of those with findings
	NotChecked []string        `json:"notChecked,omitempty"`
}

// ServiceReport are the findings about one Service.
type ServiceReport struct {
	Service  string    `json:"service"` // "namespace/name"
	Findings []Finding `json:"findings"`
}

// Add takes in the report on a Service.
func (s *Survey) Add(service string, r *Report) {
	s.APIVersion, s.Kind = schemaVersion, "Survey"
	s.Services++
	var findings []Finding
	for _, result := range r.Results {
		findings = append(findings, result.Findings...)
	}
	if len(findings) > 0 {
		s.Found = append(s.Found, ServiceReport{service, findings})
	}
	for _, n := range r.NotChecked {
		if !slices.Contains(s.NotChecked, n) {
			s.NotChecked = append(s.NotChecked, n)
		}
	}
}

// Worst is the surest finding's grade; false if there is none.
func (s *Survey) Worst() (Grade, bool) {
	worst, found := Note, false
	for _, r := range s.Found {
		for _, f := range r.Findings {
			worst, found = max(worst, f.Grade), true
		}
	}
	return worst, found
}

// WriteText writes a line for each finding.
func (s *Survey) WriteText(out io.Writer) error {
	var b strings.Builder
	problems := 0
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	next := ""
	for _, r := range s.Found {
		for _, f := range r.Findings {
			if f.Grade > Note {
				problems++
				if next == "" {
					namespace, name, _ := strings.Cut(r.Service, "/")
					next = fmt.Sprintf("fairway doctor svc/%s -n %s", name, namespace)
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Service, f.Code, f.Grade, f.What)
		}
	}
	_ = w.Flush() // into memory
	for _, n := range s.NotChecked {
		fmt.Fprintf(&b, "not checked  %s\n", n)
	}
	fmt.Fprintf(&b, "%s looked at by what the API says, %s.", count(s.Services, "Service"), count(problems, "problem"))
	if next != "" {
		fmt.Fprintf(&b, "  Next: %s", next)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(out, b.String())
	return err
}
