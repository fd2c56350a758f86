package doctor

import (
	"strings"

	"github.com/fairway-net/fairway/internal/manifest"
)

// Outcomes is what other programs are told: findings one by one, and what was looked at without
// any.
type Outcomes struct {
	Failed     []Outcome
	Passed     []string // checks or Services
	NotChecked []string // and why
	// Places says where the objects of files are, as manifest.Places does; nil without files.
	Places map[string]manifest.Place
}

// Outcome is one finding.
type Outcome struct {
	Object  string // "Service namespace/name"; "" for a machine
	Finding Finding
}

// Outcomes are the report's.
func (r *Report) Outcomes() Outcomes {
	o := Outcomes{NotChecked: r.NotChecked}
	object := r.Service
	if object != "" {
		object = "Service " + object
	}
	for _, result := range r.Results {
		if len(result.Findings) == 0 {
			o.Passed = append(o.Passed, result.Check)
		}
		for _, f := range result.Findings {
			o.Failed = append(o.Failed, Outcome{object, f})
		}
	}
	return o
}

// Outcomes are the survey's.
func (s *Survey) Outcomes() Outcomes {
	o := Outcomes{NotChecked: s.NotChecked}
	found := map[string]bool{}
	for _, r := range s.Found {
		found[r.Service] = true
		object := r.Service
		if !strings.Contains(object, " ") { // others say their kind
			object = "Service " + object
		}
		for _, f := range r.Findings {
			o.Failed = append(o.Failed, Outcome{object, f})
		}
	}
	for _, name := range s.looked {
		if !found[name] {
			o.Passed = append(o.Passed, "Service "+name)
		}
	}
	return o
}

// place is where an outcome's object is in the files that were read.
func (o *Outcomes) place(of Outcome) (manifest.Place, bool) {
	p, there := o.Places[of.Object]
	return p, there
}
