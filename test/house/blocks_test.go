package house

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/test/documented"
)

// TestEachBlockIsRun: each block of commands in a document is run by a test that there is, or
// documented.Runs says why none does.
func TestEachBlockIsRun(t *testing.T) {
	places := map[string]bool{}
	for _, b := range documented.Blocks(t, ".") {
		places[b.Place()] = true
		if documented.Runs[b.Place()] == "" {
			t.Errorf("test/documented/runs.go doesn't say what runs %s:\n%s", b.Place(), b.Text)
		}
	}
	tests := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, file := range tracked(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			for _, m := range name.FindAllStringSubmatch(read(t, file), -1) {
				tests[m[1]] = true
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(documented.Runs)) {
		if !places[place] {
			t.Errorf("there is no block %s", place)
		}
		run := documented.Runs[place]
		if strings.HasPrefix(run, "no: ") {
			continue
		}
		for test := range strings.SplitSeq(run, ", ") {
			if !tests[test] {
				t.Errorf("%s: there is no %s", place, test)
			}
		}
	}
}
