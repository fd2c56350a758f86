package house

import (
	"go/build/constraint"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentedChecks: documents name checks that there are.
func TestDocumentedChecks(t *testing.T) {
	checks := read(t, "test/checks.mk")
	documents, err := filepath.Glob("docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md") {
		for _, m := range regexp.MustCompile(`make check NAME=([a-z0-9-]+)`).FindAllStringSubmatch(read(t, document), -1) {
			found++
			if !strings.Contains(checks, "\ncheck/"+m[1]+":") {
				t.Errorf("%s: there is no check %s", document, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d checks are documented", found)
	}
}

// buildTags are those that aren't of a check: systems, and how a program is built.
var buildTags = []string{"linux", "amd64", "arm64", "race", "agentonly"}

// TestTagsHaveChecks: a build tag of tests is set by a check and by the linters.
func TestTagsHaveChecks(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{} // by tag
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		first, _, _ := strings.Cut(read(t, path), "\n")
		if !constraint.IsGoBuild(first) {
			continue
		}
		expression, err := constraint.Parse(first)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		expression.Eval(func(tag string) bool {
			if !slices.Contains(buildTags, tag) {
				files[tag] = path
			}
			return true
		})
	}
	if len(files) < 10 {
		t.Errorf("found the tags %v only", files)
	}
	checks, linters := read(t, "test/checks.mk")+read(t, "deploy/try-image"), read(t, ".golangci.yml")
	listed := regexp.MustCompile(`build-tags:[^[]*\[([^]]*)\]`).FindStringSubmatch(linters)
	if listed == nil {
		t.Fatal(".golangci.yml has no build tags")
	}
	for tag, path := range files {
		if !strings.Contains(checks, "$(call TAGGED,"+tag+")") && !strings.Contains(checks, "-tags "+tag+" ") {
			t.Errorf("%s: no check sets the tag %s", path, tag)
		}
		if !slices.Contains(strings.Split(listed[1], ", "), tag) {
			t.Errorf("%s: .golangci.yml doesn't have the tag %s", path, tag)
		}
	}
}

// TestNoRaceList: what doesn't run under the race detector is there, and has a reason.
func TestNoRaceList(t *testing.T) {
	for line := range strings.Lines(read(t, "test/norace.txt")) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		dir, reason, _ := strings.Cut(line, " ")
		if tests, err := filepath.Glob(filepath.Join(dir, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests", dir)
		}
		if len(strings.TrimSpace(reason)) < 10 {
			t.Errorf("%s: no reason", dir)
		}
	}
}
