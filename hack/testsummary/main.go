// Command testsummary reads `go test -json` from standard input and prints what
// people want to know: a line for each package, the output of what failed, the
// longest tests, and every test that was skipped. It fails if anything failed or was skipped: a test
// that needs what isn't everywhere has a build tag.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func main() {
	if !summarise(os.Stdin, os.Stdout) {
		os.Exit(1)
	}
}

// results are what has been read so far.
type results struct {
	output         map[string][]string // by package and test, until it has passed
	skipped        map[string]string   // with the reason
	passes         []event             // of tests
	passed, failed int
	broken         bool
}

func summarise(in io.Reader, out io.Writer) bool {
	r := results{output: map[string][]string{}, skipped: map[string]string{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // from the go command itself, not from a test
			continue
		}
		r.take(e, out)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(out, "read test output:", err)
		r.broken = true
	}
	for _, e := range r.longest() {
		fmt.Fprintf(out, "long  %-70s %6.1fs\n", e.Package+" "+e.Test, e.Elapsed)
	}
	for _, name := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(out, "SKIPPED, BUT REQUIRED: %s: %s\n", name, r.skipped[name])
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped))
	return !r.broken && r.failed == 0 && len(r.skipped) == 0 && r.passed > 0
}

func (r *results) take(e event, out io.Writer) {
	name := strings.TrimSpace(e.Package + " " + e.Test)
	switch e.Action {
	case "output", "build-output":
		r.output[name] = append(r.output[name], e.Output)
	case "pass":
		if e.Test == "" {
			fmt.Fprintf(out, "ok    %-70s %6.1fs\n", e.Package, e.Elapsed)
		} else {
			r.passed++
			r.passes = append(r.passes, e)
		}
		delete(r.output, name)
	case "skip":
		if e.Test != "" {
			r.skipped[name] = reason(r.output[name])
		}
		delete(r.output, name)
	case "fail", "build-fail":
		if e.Test != "" {
			r.failed++
		} else {
			r.broken = true
		}
		fmt.Fprintf(out, "FAIL  %s %.1fs\n%s", name, e.Elapsed, strings.Join(r.output[name], ""))
		delete(r.output, name)
		if e.Test == "" {
			r.unended(e.Package, out)
		}
	}
}

// unended prints what the tests said that were running when a package's tests
// broke off: a process that ends by itself, a panic outside the test's own
// goroutine included, ends no test, and its last words are counted as the test's.
func (r *results) unended(pkg string, out io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(r.output)) {
		if !strings.HasPrefix(name, pkg+" ") {
			continue
		}
		lines := r.output[name]
		if left := len(lines) - unendedShown; left > 0 {
			lines = append([]string{fmt.Sprintf("(%d lines before)\n", left)}, lines[left:]...)
		}
		fmt.Fprintf(out, "BROKE OFF  %s\n%s", name, strings.Join(lines, ""))
		delete(r.output, name)
	}
}

// unendedShown is how many of the last lines are printed of a test that broke off.
const unendedShown = 400

// longest are the tests without parts of their own that took longest, longest first.
func (r *results) longest() []event {
	parents := map[string]bool{}
	for _, e := range r.passes {
		for name := e.Test; ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			parents[e.Package+" "+name] = true
		}
	}
	all := slices.DeleteFunc(slices.Clone(r.passes), func(e event) bool { return parents[e.Package+" "+e.Test] })
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	return all[:min(len(all), longestShown)]
}

// longestShown is how many of the longest tests are named.
const longestShown = 12

// reason is what a skipped test said, without the lines that go test adds.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}
