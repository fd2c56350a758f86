package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMetalLBCases: docs/results/metallb-cases.md has all cases of MetalLB's suite, each with a test
// that is there, or with why it doesn't apply.
func TestMetalLBCases(t *testing.T) {
	text, err := os.ReadFile("docs/results/metallb-cases.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"## BGP: 140": 140, "## Layer 2: 59": 59, "## Validation: 19": 19, "## State: 10": 10}
	count, section := map[string]int{}, ""
	tests := regexp.MustCompile("`([^` ]+) ([A-Za-z]+)/?([^`]*)`")
	sources := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			section = line
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 || cells[0] == " case" {
			continue
		}
		count[section] += len(strings.Split(cells[1], "; "))
		found := tests.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 && !strings.Contains(cells[2], "no: ") {
			t.Errorf("%s: neither a test nor a reason", cells[0])
		}
		for _, f := range found {
			source, read := sources[f[1]]
			if !read {
				source = testsOf(t, f[1])
				sources[f[1]] = source
			}
			if !strings.Contains(source, "func "+f[2]+"(") || f[3] != "" && !strings.Contains(source, `"`+f[3]+`"`) {
				t.Errorf("%s: there is no test %s", cells[0], f[0])
			}
		}
	}
	for section, n := range want {
		if count[section] != n {
			t.Errorf("%s: %d cases", section, count[section])
		}
	}
}

// testsOf is the source of a package's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
