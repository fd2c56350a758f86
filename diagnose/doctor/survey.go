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
	// Proposed says that this is how things would be with manifests applied, without what is so now.
	Proposed bool `json:"proposed,omitempty"`

	looked []string // at which Services, as "namespace/name"
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
	s.looked = append(s.looked, service)
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

// LeaveOut leaves out the findings that another survey has of the same objects.
func (s *Survey) LeaveOut(other *Survey) {
	known := map[string][]Finding{}
	for _, r := range other.Found {
		known[r.Service] = append(known[r.Service], r.Findings...)
	}
	var left []ServiceReport
	for _, r := range s.Found {
		r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
			return slices.ContainsFunc(known[r.Service], func(k Finding) bool {
				return f.same(k) && !slices.ContainsFunc(f.Of, func(of string) bool { return !slices.Contains(k.Of, of) })
			})
		})
		if len(r.Findings) > 0 {
			left = append(left, r)
		}
	}
	s.Found = left
}

// AddRefused takes in an object that the server would refuse, and why: FW135. The object is named
// as "Kind namespace/name", or as a file.
func (s *Survey) AddRefused(object, reason string) {
	s.Found = append(s.Found, ServiceReport{object, []Finding{{Code: ObjectRefused, Grade: Proved, What: reason, Fix: cause(ObjectRefused).Fix}}})
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

// foundOf is a finding with the Services of which it was made.
type foundOf struct {
	finding  Finding
	services []string
}

// grouped are the findings, each once: what is true of many Services is one line.
func (s *Survey) grouped() []foundOf {
	var list []foundOf
	at := map[string]int{}
	for _, r := range s.Found {
		for _, f := range r.Findings {
			key := f.Code.String() + f.Grade.String() + f.What
			i, there := at[key]
			if !there {
				at[key] = len(list)
				list = append(list, foundOf{f, []string{r.Service}})
				continue
			}
			g := &list[i]
			if !slices.Contains(g.services, r.Service) {
				g.services = append(g.services, r.Service)
			}
			for _, of := range f.Of {
				if !slices.Contains(g.finding.Of, of) {
					g.finding.Of = append(slices.Clone(g.finding.Of), of)
				}
			}
		}
	}
	return list
}

// WriteText writes a line for each finding.
func (s *Survey) WriteText(out io.Writer) error {
	var b strings.Builder
	problems := 0
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	next := ""
	for _, g := range s.grouped() {
		if g.finding.Grade > Note {
			problems++
			if namespace, name, isService := strings.Cut(g.services[0], "/"); next == "" && isService && !strings.Contains(namespace, " ") {
				next = fmt.Sprintf("fairway doctor svc/%s -n %s", name, namespace)
			}
		}
		of := g.services[0]
		if more := len(g.services) - 1; more > 0 {
			of += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", of, g.finding.Code, g.finding.Grade, g.finding.text())
	}
	_ = w.Flush() // into memory
	for _, n := range s.NotChecked {
		fmt.Fprintf(&b, "not checked  %s\n", n)
	}
	by := "by what the API says"
	switch {
	case s.InForce:
		by = "by what agents have in force"
	case s.Proposed:
		by, next = "as they would be, by what the API says", "" // which is about what runs
	}
	fmt.Fprintf(&b, "%s looked at %s, %s.", count(s.Services, "Service"), by, count(problems, "problem"))
	if next != "" {
		fmt.Fprintf(&b, "  Next: %s", next)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(out, b.String())
	return err
}
