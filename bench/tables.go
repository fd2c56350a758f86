package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// table is one table of the report. Each figure has a commit and a date of its
// own, so that a run of one mode or one part leaves the others' alone.
type table struct {
	title, command, goal string
	figures              []figure
}

// figure is what was measured of a mode.
type figure struct{ mode, text, commit, date string }

const (
	titleMark   = "\n### "
	tableHeader = "| mode | measured | commit | date |\n|---|---|---|---|\n"
)

func (t *table) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s%s\n\n`%s`\n\n", titleMark, t.title, t.command)
	if t.goal != "" {
		fmt.Fprintf(b, "%s\n\n", t.goal)
	}
	b.WriteString(tableHeader)
	for _, f := range t.figures {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", f.mode, f.text, f.commit, f.date)
	}
}

// parseTables reads what write has written.
func parseTables(text []byte) []table {
	var list []table
	for i, section := range strings.Split(string(text), titleMark) {
		if i == 0 {
			continue
		}
		var t table
		for j, line := range strings.Split(section, "\n") {
			switch cells := strings.Split(strings.Trim(line, "| "), " | "); {
			case j == 0:
				t.title = line
			case strings.HasPrefix(line, "`"):
				t.command = strings.Trim(line, "`")
			case len(cells) == 4 && cells[0] != "mode":
				t.figures = append(t.figures, figure{cells[0], cells[1], cells[2], cells[3]})
			case line != "" && !strings.HasPrefix(line, "|"):
				t.goal = line
			}
		}
		if t.title != summaryTitle {
			list = append(list, t)
		}
	}
	return list
}

// merge puts a table's figures in the place of earlier ones. Tables of one
// measure stay together.
func merge(all []table, fresh table) []table {
	i := slices.IndexFunc(all, func(t table) bool { return t.title == fresh.title })
	if i < 0 {
		return append(all, fresh)
	}
	for _, f := range all[i].figures {
		if !slices.ContainsFunc(fresh.figures, func(g figure) bool { return g.mode == f.mode }) {
			fresh.figures = append(fresh.figures, f)
		}
	}
	slices.SortStableFunc(fresh.figures, func(a, b figure) int { return placeOf(a.mode) - placeOf(b.mode) })
	all[i] = fresh
	return all
}

// summaryTitle heads the table of all measures that have a goal.
const summaryTitle = "Goal by goal"

// writeSummary brings the tables that have a goal together, each figure without
// what it says in brackets.
func writeSummary(b *bytes.Buffer, all []table) {
	fmt.Fprintf(b, "%s%s\n\n| what | goal |", titleMark, summaryTitle)
	shown := modeOrder[1:]
	for _, mode := range shown {
		fmt.Fprintf(b, " %s |", mode)
	}
	fmt.Fprintf(b, "\n|---|---|%s\n", strings.Repeat("---|", len(shown)))
	for _, t := range all {
		goal, _, _ := strings.Cut(strings.TrimPrefix(t.goal, "Goal: "), ". ")
		if goal == "" || goal == t.goal {
			continue
		}
		fmt.Fprintf(b, "| %s | %s |", t.title, strings.TrimSuffix(goal, "."))
		for i, mode := range shown {
			cell := ""
			for _, f := range t.figures {
				if f.mode == mode || f.mode == modeOrder[0] && i == 0 {
					cell = bracketed.ReplaceAllString(f.text, "")
				}
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteString("\n")
	}
}

var bracketed = regexp.MustCompile(` \([^)]*\)`)

// inOrder sorts tables as rows has them, smaller sizes first.
func inOrder(all []table) {
	place := func(t table) int {
		return slices.IndexFunc(rows(), func(w row) bool { return strings.HasPrefix(t.title, w.what+", ") })
	}
	size := func(t table) (n int) {
		fields := strings.Fields(t.title)
		if len(fields) > 2 {
			n, _ = strconv.Atoi(fields[len(fields)-3]) // a title without a size comes first
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b table) int { return cmp.Or(place(a)-place(b), size(a)-size(b)) })
}

// modeOrder is that of the columns and rows: first what belongs to no mode.
var modeOrder = []string{"API", "nftables", "ebpf", "ipvs", "iptables-nft", "iptables-legacy", "userspace"}

// placeOf orders modes as the report has them.
func placeOf(mode string) int {
	i := slices.Index(modeOrder, mode)
	if i < 0 {
		return 99
	}
	return i
}
