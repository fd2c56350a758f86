package planes

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Case is a script and the files that it names.
type Case struct {
	Name  string
	About string // the comment lines above the first step
	Steps []Step
	Files map[string][]byte
}

// Step is one line of a case's script.
type Step struct {
	Line       int    // in the case's file
	Text       string // as written, without conditions
	Conditions []Condition
	Verb       string
	Args       []string
	// Of probe, flow, send and forgets: what is expected.
	Expect *Expectation
}

// Condition limits a step to some planes.
type Condition struct {
	// Plane limits the step to the plane of this name, or, with Not, to the
	// others.
	Plane string
	Not   bool
	// Needs is a feature that the step needs. If the plane lacks it, the step
	// is left out and listed as an exception.
	Needs kernel.Feature
	Value string // which scheduler; "" if that's not the point
}

// verbs are the steps that there are, and how many arguments they take at
// least and at most.
var verbs = map[string]struct {
	least, most int
	expects     bool
}{
	"config":    {1, 100, false},
	"node":      {1, 100, false},
	"apply":     {1, 100, false},
	"endpoints": {2, 100, false},
	"delete":    {2, 2, false},
	"probe":     {3, 5, true},
	"flow":      {4, 4, true},
	"send":      {1, 1, true},
	"close":     {1, 1, false},
	"pair":      {0, 0, false},
	"bypasses":  {1, 1, false},
	"alike":     {4, 4, false},
	"via":       {1, 1, false},
	"invalid":   {1, 1, false},
	"forgets":   {4, 4, true},
	"load":      {4, 4, false},
	"unload":    {1, 1, false},
	"kill":      {0, 0, false},
	"start":     {0, 0, false},
	"restart":   {0, 0, false},
	"switch":    {0, 0, false},
	"resync":    {0, 0, false},
	"verify":    {0, 0, false},
	"run":       {1, 100, false},
	"repaired":  {0, 0, false},
	"disturb":   {0, 0, false},
	"large":     {2, 2, false},
}

// ParseCase reads a case from its txtar form. Errors name the line.
func ParseCase(name string, data []byte) (*Case, error) {
	archive := txtar.Parse(data)
	c := &Case{Name: name, Files: map[string][]byte{}}
	for _, f := range archive.Files {
		if _, twice := c.Files[f.Name]; twice {
			return nil, fmt.Errorf("case %s: file %q appears twice", name, f.Name)
		}
		c.Files[f.Name] = f.Data
	}
	for i, text := range strings.Split(string(archive.Comment), "\n") {
		text = strings.TrimSpace(text)
		if comment, ok := strings.CutPrefix(text, "#"); ok && len(c.Steps) == 0 {
			c.About += strings.TrimSpace(comment) + "\n"
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		step, err := parseStep(text)
		if err != nil {
			return nil, fmt.Errorf("case %s: line %d: %w", name, i+1, err)
		}
		step.Line = i + 1
		if err := c.check(step); err != nil {
			return nil, fmt.Errorf("case %s: line %d: %s: %w", name, i+1, step.Verb, err)
		}
		c.Steps = append(c.Steps, step)
	}
	if len(c.Steps) == 0 {
		return nil, fmt.Errorf("case %s: no steps", name)
	}
	return c, nil
}

// SCTP reports whether the case needs a kernel that has SCTP.
func (c *Case) SCTP() bool {
	for _, s := range c.Steps {
		if at := slices.Index(s.Args, model.SCTP.String()); s.Expect != nil && at >= 0 {
			return true
		}
	}
	return false
}

// pauses counts the steps that wait for timeouts.
func (c *Case) pauses() int {
	n := 0
	for _, s := range c.Steps {
		if s.Verb == "forgets" {
			n++
		}
	}
	return n
}

func parseStep(text string) (Step, error) {
	var s Step
	for strings.HasPrefix(text, "[") {
		inside, rest, ok := strings.Cut(text[1:], "]")
		if !ok {
			return s, fmt.Errorf("condition %q: no closing bracket", text)
		}
		condition, err := parseCondition(inside)
		if err != nil {
			return s, err
		}
		s.Conditions = append(s.Conditions, condition)
		text = strings.TrimSpace(rest)
	}
	s.Text = text
	command, expectation, expects := strings.Cut(text, "->")
	fields := strings.Fields(command)
	if len(fields) == 0 {
		return s, fmt.Errorf("%q is no step", text)
	}
	s.Verb, s.Args = fields[0], fields[1:]
	verb, known := verbs[s.Verb]
	switch {
	case !known:
		return s, fmt.Errorf("unknown step %q", s.Verb)
	case !verb.expects && expects && s.Verb == "run": // the command's own
		s.Args = strings.Fields(text)[1:]
	case verb.expects != expects:
		return s, fmt.Errorf("%s: an expectation (-> ...) belongs to probe, flow, send and forgets, and only to them", s.Verb)
	case len(s.Args) < verb.least || len(s.Args) > verb.most:
		return s, fmt.Errorf("%s: %d arguments, must be %d to %d", s.Verb, len(s.Args), verb.least, verb.most)
	}
	if verb.expects {
		e, err := parseExpectation(expectation)
		if err != nil {
			return s, fmt.Errorf("%s: %w", s.Verb, err)
		}
		s.Expect = e
	}
	return s, nil
}

func parseCondition(text string) (Condition, error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 2 && words[0] == "plane":
		return Condition{Plane: words[1]}, nil
	case len(words) == 3 && words[0] == "not" && words[1] == "plane":
		return Condition{Plane: words[2], Not: true}, nil
	case len(words) >= 2 && words[0] == "needs":
		feature, value, _ := strings.Cut(strings.Join(words[1:], " "), "=")
		return Condition{Needs: kernel.Feature(feature), Value: value}, nil
	}
	return Condition{}, fmt.Errorf("condition [%s]: must be [plane NAME], [not plane NAME] or [needs FEATURE]", text)
}
