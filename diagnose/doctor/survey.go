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
	// InForce says that agents told what they have in force, for an API that can't be asked.
	InForce bool `json:"inForce,omitempty"`
}

// ServiceReport are the findings about one Service.
type ServiceReport struct {
	Service  string    `json:"service"` // "namespace/name"
	Findings []Finding `json:"findings"`
}

// NewSurvey is one of nothing yet.
func NewSurvey() *Survey { return &Survey{APIVersion: schemaVersion, Kind: "Survey"} }

// Add takes in the report on a Service.
func (s *Survey) Add(service string, r *Report) {
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
	by := "by what the API says"
	if s.InForce {
		by = "by what agents have in force"
	}
	fmt.Fprintf(&b, "%s looked at %s, %s.", count(s.Services, "Service"), by, count(problems, "problem"))
	if next != "" {
		fmt.Fprintf(&b, "  Next: %s", next)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(out, b.String())
	return err
}
