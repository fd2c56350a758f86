package house

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// product are the files of the product in Go, without tests, what is generated, and the lab, whose Pods
// have Events of the kubelet.
func product(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(tracked(t, ".go"), func(file string) bool {
		return strings.HasSuffix(file, "_test.go") || slices.ContainsFunc([]string{"test/", "lab/", "apis/", "hack/", "tools/"}, func(folder string) bool {
			return strings.HasPrefix(file, folder)
		})
	})
}

// eventReason is a reason of Events in code: a constant, or an argument.
var eventReason = regexp.MustCompile(`(?:\b[rR]eason(?:[A-Z]\w*)? += |\bReason = |\bNothingActs = |\bNotCounted += |EventType(?:Normal|Warning), )"([a-zA-Z]+)"`)

// TestEventsAreDocumented: docs/reference/events.md has each reason of Events that code has, and no other.
func TestEventsAreDocumented(t *testing.T) {
	// What is no reason of an Event.
	others := []string{"diagnose/", "ingress/engine/", "ingress/model/", "apiserver/tables/", "apiserver/rights/"}
	inCode := map[string]string{"FailedToStarthealthz": "agent/serve.go", "FailedToStartmetrics": "agent/serve.go"}
	for _, file := range product(t) {
		if slices.ContainsFunc(others, func(folder string) bool { return strings.HasPrefix(file, folder) }) {
			continue
		}
		for _, m := range eventReason.FindAllStringSubmatch(read(t, file), -1) {
			inCode[m[1]] = file
		}
	}
	inPage := map[string]bool{}
	for row := range strings.Lines(read(t, "docs/reference/events.md")) {
		if cells := strings.Split(row, "|"); len(cells) > 3 && !strings.HasPrefix(row, "|---") {
			for _, m := range regexp.MustCompile("`([a-zA-Z]+)`").FindAllStringSubmatch(cells[1]+cells[2], -1) {
				inPage[m[1]] = true
			}
		}
	}
	for reason, file := range inCode {
		if !inPage[reason] {
			t.Errorf("docs/reference/events.md doesn't have %s, which %s writes", reason, file)
		}
	}
	for reason := range inPage {
		if inCode[reason] == "" {
			t.Errorf("docs/reference/events.md has %s, which nothing writes", reason)
		}
	}
}

var metricName = regexp.MustCompile(`"(fairway_[a-z_]+)"`)

// TestMetricsAreDocumented: docs/reference/configuration.md has each metric of Fairway's own.
func TestMetricsAreDocumented(t *testing.T) {
	page := read(t, "docs/reference/configuration.md")
	found := 0
	for _, file := range product(t) {
		text := read(t, file)
		if !strings.Contains(text, "prometheus.") {
			continue // names of other things
		}
		for _, m := range metricName.FindAllStringSubmatch(text, -1) {
			found++
			name := m[1]
			_, short, _ := strings.Cut(name, "fairway_endpoint") // the page writes `_packets_total` after the first
			if !strings.Contains(page, "`"+name) && (short == "" || !strings.Contains(page, "`"+short+"`")) {
				t.Errorf("docs/reference/configuration.md doesn't have %s of %s", name, file)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d metrics were found", found)
	}
}

// longSubjects is the last commit whose subject may be longer than 72 characters.
const longSubjects = "3046007b39979b49453933099daab4582fbbeafa"

// TestCommitSubjects: subjects of new commits have at most 72 characters, as `git log --oneline` and mails show them.
func TestCommitSubjects(t *testing.T) {
	since := longSubjects + "..HEAD"
	if exec.Command("git", "cat-file", "-e", longSubjects).Run() != nil {
		since = "-1" // a clone without history
	}
	out, err := exec.Command("git", "log", "--no-merges", "--format=%h %s", since).Output()
	if err != nil {
		t.Fatalf("git log: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		commit, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n := utf8.RuneCountInString(subject); n > 72 {
			t.Errorf("the subject of %s has %d characters, more than 72: %s", commit, n, subject)
		}
	}
}

// flagPort is a row of docs/reference/commands.md with a port in the flag's default.
var flagPort = regexp.MustCompile("(?m)^\\| `(--[a-z-]*(?:port|address|listen)[a-z-]*)` \\| `(?:\\S*:)?(\\d+)(?:-\\d+)?`")

// TestPortsAreDocumented: docs/reference/ports.md has each port that a flag has by default, in a row with the flag.
func TestPortsAreDocumented(t *testing.T) {
	flags := flagPort.FindAllStringSubmatch(read(t, "docs/reference/commands.md"), -1)
	if len(flags) < 8 {
		t.Errorf("only %d flags with ports were found", len(flags))
	}
	page := read(t, "docs/reference/ports.md")
	for _, m := range flags {
		if m[2] == "0" {
			continue // none
		}
		row := regexp.MustCompile(`(?m)^\|[^\n]*\b` + m[2] + "\\b[^\n]*`" + m[1] + "`")
		if !row.MatchString(page) {
			t.Errorf("docs/reference/ports.md has no row with port %s and %s", m[2], m[1])
		}
	}
}

// TestNamedTests: tests and benchmarks that documents name are there.
func TestNamedTests(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	for _, file := range tracked(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, file), -1) {
				there[m[1]] = true
			}
		}
	}
	named := 0
	mention := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	for _, file := range tracked(t, ".md") {
		if file == "CHANGELOG.md" || strings.HasPrefix(file, "docs/decisions/") {
			continue // what was named so is history
		}
		for _, name := range mention.FindAllString(read(t, file), -1) {
			named++
			if !there[name] {
				t.Errorf("%s names %s, which isn't there", file, name)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names were found", named)
	}
}
