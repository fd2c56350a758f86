package bench

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// announceTitle is of the table that says which goals are met.
const announceTitle = "Goals of announcing"

func (r *announceRun) write() error {
	if len(r.results) == 0 {
		return nil
	}
	o := Options{Out: r.Out, Section: r.Section, Stdout: r.Stdout, Version: r.Version}
	return writeReport(o, func(earlier []byte) []byte {
		var b bytes.Buffer
		fmt.Fprintf(&b, "Last run: %s; commit %s; %s; %s; %d connections.\n", machine(), r.Version, time.Now().UTC().Format(time.DateOnly),
			time.Since(r.began).Round(time.Second), r.Connections)
		all := parseTables(earlier)
		for _, t := range r.tables() {
			all = merge(all, t)
		}
		slices.SortStableFunc(all, func(a, b table) int { return placeOfEvent(a.title) - placeOfEvent(b.title) })
		for _, t := range all {
			slices.SortFunc(t.figures, func(a, b figure) int { return strings.Compare(a.mode, b.mode) })
		}
		writeGoals(&b, all)
		for _, t := range all {
			t.write(&b)
		}
		return b.Bytes()
	})
}

// tables are what was measured now, a table for each event.
func (r *announceRun) tables() []table {
	var list []table
	for _, m := range r.results {
		i := slices.IndexFunc(list, func(t table) bool { return t.title == title(m.event) })
		if i < 0 {
			i = len(list)
			list = append(list, table{title: title(m.event), command: "fairway-bench announce --only " + m.event.name, goal: goalsOf(m.event.name)})
		}
		list[i].figures = append(list[i].figures, figure{m.who, m.text, r.Version, time.Now().UTC().Format(time.DateOnly)})
	}
	return list
}

// title of an event's table begins with a capital letter.
func title(e event) string { return strings.ToUpper(e.what[:1]) + e.what[1:] }

// goalsOf says what is aimed at by each way.
func goalsOf(name string) string {
	var goals []string
	for _, e := range events() {
		if e.name == name && e.goal != "" && !slices.Contains(goals, e.goal) {
			goals = append(goals, e.goal)
		}
	}
	if len(goals) == 0 {
		return ""
	}
	return "Goal: " + strings.Join(goals, "; ") + "."
}

func placeOfEvent(text string) int {
	return slices.IndexFunc(events(), func(e event) bool { return title(e) == text })
}

// writeGoals says of each event by which ways and modes its goal is met.
func writeGoals(b *bytes.Buffer, all []table) {
	fmt.Fprintf(b, "%s%s\n\n| what | goal | met by | not met by |\n|---|---|---|---|\n", titleMark, announceTitle)
	for _, t := range all {
		var met, missed []string
		for _, f := range t.figures {
			switch {
			case strings.HasPrefix(f.text, notMetMark):
				missed = append(missed, f.mode)
			case strings.HasPrefix(f.text, metMark):
				met = append(met, f.mode)
			}
		}
		if len(met)+len(missed) > 0 {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", t.title, t.aim(), strings.Join(met, "; "), strings.Join(missed, "; "))
		}
	}
}
