// Package dump compares what the kernel holds with what a table wants it to hold,
// for the whole table or for one Service. It is pure: kernel objects that were
// rendered and objects that were read go in, a report comes out.
package dump

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// The states of a line of a kernel object.
const (
	AsItShould = "ok"
	Missing    = "missing"    // it should be there
	Unexpected = "unexpected" // it should not be there, or not like this
	Unjudged   = "there"      // it isn't known what should be
)

// Report says what the kernel holds.
type Report struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // "Dump"
	Node       string `json:"node,omitempty"`
	Mode       string `json:"mode"`
	Service    string `json:"service,omitempty"` // "namespace/name"; "" for all
	Table      string `json:"table,omitempty"`   // in the words of render --table
	Lines      []Line `json:"lines"`
	// Unknown says why it isn't known what should be there.
	Unknown string `json:"unknown,omitempty"`
	// Lacks are what the mode doesn't do on this machine: what serves only that may
	// be missing.
	Lacks []string `json:"lacks,omitempty"`
}

// Line is a kernel object, or one line of it.
type Line struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Text  string `json:"text,omitempty"`
	State string `json:"state"`
}

// String gives the line as the objects of render --objects are given.
func (l Line) String() string { return strings.TrimRight(l.Kind+" "+l.Name+" "+l.Text, " ") }

// Renderer says what a data plane would put into the kernel for a table.
type Renderer func(*model.Table) ([]kernel.Object, error)

// Of compares what the kernel holds with a table. With a Service, only its part is
// looked at: what the kernel would not hold without it.
func Of(table *model.Table, service string, render Renderer, have []kernel.Object) (*Report, error) {
	wanted, err := render(table)
	if err != nil {
		return nil, fmt.Errorf("render the table: %w", err)
	}
	want, there := linesOf(wanted), linesOf(have)
	r := start(service)
	r.Table = table.String()
	if service == "" {
		r.mark(want, there, want, func(Line) bool { return true })
		return r, nil
	}
	part, rest := split(table, service)
	if part.NumFrontends()+part.NumPools() == 0 {
		return nil, fmt.Errorf("nothing of Service %s is in force here", service)
	}
	others, err := render(rest)
	if err != nil {
		return nil, fmt.Errorf("render the table without %s: %w", service, err)
	}
	r.Table = part.String() // its settings are nobody's own
	own := minus(want, linesOf(others))
	r.mark(want, there, own, concerns(part, own))
	return r, nil
}

// Read reports objects of which it isn't known whether they should be there.
func Read(have []kernel.Object, unknown string) *Report {
	r := start("")
	r.Unknown = unknown
	for _, l := range linesOf(have) {
		l.State = Unjudged
		r.Lines = append(r.Lines, l)
	}
	return r
}

func start(service string) *Report {
	return &Report{APIVersion: explain.SchemaVersion, Kind: "Dump", Service: service, Lines: []Line{}}
}

// mark lists the lines of own with their state, and what is there beside them and
// concerns them.
func (r *Report) mark(want, there, own []Line, concerned func(Line) bool) {
	missing := counted(minus(want, there))
	for _, l := range own {
		l.State = AsItShould
		if missing[l.key()] > 0 {
			missing[l.key()]--
			l.State = Missing
		}
		r.Lines = append(r.Lines, l)
	}
	for _, l := range minus(there, want) {
		if concerned(l) {
			l.State = Unexpected
			r.Lines = append(r.Lines, l)
		}
	}
}

// linesOf splits objects with several lines: an iptables chain that all Services
// share has a line for each.
func linesOf(objects []kernel.Object) []Line {
	var list []Line
	for _, o := range objects {
		for text := range strings.SplitSeq(o.Text, "\n") {
			list = append(list, Line{Kind: o.Kind, Name: o.Name, Text: text})
		}
	}
	return list
}

func (l Line) key() [3]string { return [3]string{l.Kind, l.Name, l.Text} }

func counted(lines []Line) map[[3]string]int {
	counts := make(map[[3]string]int, len(lines))
	for _, l := range lines {
		counts[l.key()]++
	}
	return counts
}

// minus are the lines that are not among others, as often as they aren't.
func minus(lines, others []Line) []Line {
	counts := counted(others)
	var list []Line
	for _, l := range lines {
		if counts[l.key()] > 0 {
			counts[l.key()]--
			continue
		}
		list = append(list, l)
	}
	return list
}

// split makes two tables of one: what is of a Service, and all else.
func split(table *model.Table, service string) (part, rest *model.Table) {
	in, out := model.NewTable().Edit(), table.Edit()
	for f := range table.Frontends() {
		if model.ServiceOf(f.Name) == service {
			in.SetFrontend(f)
			out.DeleteFrontend(f.Key)
		}
	}
	for p := range table.Pools() {
		if model.ServiceOf(p.ID.Name) == service {
			in.SetPool(p)
			out.DeletePool(p.ID)
		}
	}
	return in.Table(), out.Table()
}

// concerns tells which lines that shouldn't be there are about a Service: they are
// in an object that is its own alone, or name it, or one of its addresses.
func concerns(part *model.Table, own []Line) func(Line) bool {
	objects := map[[2]string]bool{}
	for _, l := range own {
		objects[[2]string{l.Kind, l.Name}] = true
	}
	var names []string
	for f := range part.Frontends() {
		if !f.IsNodePort() {
			names = append(names, f.Addr.String())
		}
		names = append(names, f.Name)
	}
	for p := range part.Pools() {
		for _, b := range p.Backends {
			names = append(names, b.Addr.String())
		}
	}
	return func(l Line) bool {
		text := l.Name + " " + l.Text
		return objects[[2]string{l.Kind, l.Name}] && !shared(l) ||
			slices.ContainsFunc(names, func(name string) bool { return mentions(text, name) })
	}
}

// shared reports whether an object has lines of several Services.
func shared(l Line) bool { return l.Kind == "chain" && !strings.Contains(l.Name, "KUBE-S") }

// mentions reports whether a text has a name as a word of its own: 10.96.0.1 isn't
// in 10.96.0.10.
func mentions(text, name string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		before, after := text[:at+i], text[at+i+len(name):]
		if before != strings.TrimRight(before, hexDigits) || after != "" && strings.ContainsRune(hexDigits, rune(after[0])) {
			at += i + len(name)
			continue
		}
		return true
	}
}

// hexDigits are what addresses end with.
const hexDigits = "0123456789abcdef"

// Differences are the lines that are not as they should be.
func (r *Report) Differences() []Line {
	return slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.State == AsItShould || l.State == Unjudged })
}

// mostShown is how many differences the text lists.
const mostShown = 40

// WriteText writes the report for people. With objects, every line is listed.
func (r *Report) WriteText(out io.Writer, objects bool) error {
	var b strings.Builder
	of := "all Services"
	if r.Service != "" {
		of = r.Service
	}
	switch {
	case r.Unknown != "":
		fmt.Fprintf(&b, "%s mode, as read from the kernel; what should be there is not known: %s\n", r.Mode, r.Unknown)
		objects = true
	default:
		fmt.Fprintf(&b, "%s on %s (%s)\n%s", of, r.Node, r.Mode, r.Table)
	}
	differences := r.Differences()
	if objects {
		for _, l := range r.Lines {
			fmt.Fprintf(&b, "%-10s  %s\n", l.State, l)
		}
	} else {
		for i, l := range differences {
			if i == mostShown {
				fmt.Fprintf(&b, "and %d more: --objects\n", len(differences)-i)
				break
			}
			fmt.Fprintf(&b, "%-10s  %s\n", l.State, l)
		}
	}
	if r.Unknown == "" {
		extra := 0
		for _, l := range differences {
			if l.State == Unexpected {
				extra++
			}
		}
		total := len(r.Lines) - extra
		fmt.Fprintf(&b, "kernel: %d of %d objects as they should be", total-(len(differences)-extra), total)
		if extra > 0 {
			fmt.Fprintf(&b, ", %d unexpected", extra)
		}
		b.WriteByte('\n')
		if len(differences) > 0 && len(r.Lacks) > 0 {
			fmt.Fprintf(&b, "note: what serves only this may be missing, since this machine lacks it: %s\n", strings.Join(r.Lacks, "; "))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
