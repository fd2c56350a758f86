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
		if !slices.Contains([]string{summaryTitle, sectionTitle, besideTitle, announceTitle}, t.title) {
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

// Titles of tables that bring others together.
const (
	summaryTitle = "Goal by goal"      // all measures that have a goal
	sectionTitle = "Side by side"      // all measures of a section
	besideTitle  = "Beside kube-proxy" // all measures of which kube-proxy has a figure
)

// writeSummary brings tables together: those that have a goal, or, in a section of
// its own, all.
func writeSummary(b *bytes.Buffer, section string, all []table) {
	if section == gatewaySection {
		writeTogether(b, sectionTitle, all, true)
		return
	}
	if section != "" {
		writeTogether(b, sectionTitle, all, false)
		return
	}
	writeTogether(b, summaryTitle, slices.DeleteFunc(slices.Clone(all), func(t table) bool { return t.aim() == "" }), true)
}

// writeBeside brings together what was measured of kube-proxy, too.
func writeBeside(b *bytes.Buffer, all []table) {
	var list []table
	for _, t := range all {
		both := t
		both.figures = slices.DeleteFunc(slices.Clone(t.figures), func(f figure) bool {
			return !t.has(proxyName+strings.TrimPrefix(f.mode, proxyName)) || !t.has(strings.TrimPrefix(f.mode, proxyName))
		})
		if len(both.figures) > 0 {
			list = append(list, both)
		}
	}
	if len(list) > 0 {
		writeTogether(b, besideTitle, list, false)
	}
}

func (t *table) has(mode string) bool {
	return slices.ContainsFunc(t.figures, func(f figure) bool { return f.mode == mode })
}

// aim is the table's goal alone.
func (t *table) aim() string {
	goal, found := strings.CutPrefix(t.goal, "Goal: ")
	if !found {
		return ""
	}
	goal, _, _ = strings.Cut(goal, ". ")
	return strings.TrimSuffix(goal, ".")
}

// writeTogether writes tables as lines of one, each figure without what it says
// in brackets.
func writeTogether(b *bytes.Buffer, title string, list []table, goals bool) {
	var shown []string
	for _, mode := range modeOrder[1:] {
		if goals && !strings.HasPrefix(mode, proxyName) && isGateway(mode) == isGateway(firstMode(list)) || !goals && slices.ContainsFunc(list, func(t table) bool { return t.has(mode) }) {
			shown = append(shown, mode)
		}
	}
	head := []string{"what"}
	if goals {
		head = append(head, "goal")
	}
	head = append(head, shown...)
	fmt.Fprintf(b, "%s%s\n\n| %s |\n|%s\n", titleMark, title, strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, t := range list {
		cells := []string{t.title}
		if goals {
			cells = append(cells, t.aim())
		}
		for i, mode := range shown {
			cell := ""
			for _, f := range t.figures {
				if f.mode == mode || f.mode == modeOrder[0] && i == 0 {
					cell = bracketed.ReplaceAllString(f.text, "")
				}
			}
			cells = append(cells, cell)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
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
var modeOrder = []string{"API", "nftables", proxyName + "nftables", "ebpf", "ipvs", proxyName + "ipvs",
	"iptables-nft", proxyName + "iptables-nft", "iptables-legacy", proxyName + "iptables-legacy", "userspace", "native", "haproxy engine", "haproxy", silentName, againName, "nginx"}

// isGateway reports whether a mode is an engine for Gateways, or stands beside them.
func isGateway(mode string) bool { return placeOf(mode) >= placeOf("native") && placeOf(mode) < 99 }

func firstMode(list []table) string {
	for _, t := range list {
		if len(t.figures) > 0 {
			return t.figures[0].mode
		}
	}
	return ""
}

// placeOf orders modes as the report has them.
func placeOf(mode string) int {
	i := slices.Index(modeOrder, mode)
	if i < 0 {
		return 99
	}
	return i
}
