package bench

import (
	"bytes"
	"fmt"
	"slices"
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
		list = append(list, t)
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

// placeOf orders modes as the report has them: the fastest first.
func placeOf(mode string) int {
	i := slices.Index([]string{"API", "nftables", "ebpf", "ipvs", "iptables-nft", "iptables-legacy", "userspace"}, mode)
	if i < 0 {
		return 99
	}
	return i
}
