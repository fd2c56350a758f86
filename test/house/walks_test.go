package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// walks are the changes that CONTRIBUTING.md leads through.
var walks = []string{
	"Add a field of Service", "Add a data plane", "Add an engine for requests", "Add a filter of Gateway API", "Add an annotation",
	"Add a check to doctor", "Add a command", "Add a host to the conformance suite", "Add a controller",
}

// quoted is what stands between backquotes.
var quoted = regexp.MustCompile("`([^`]+)`")

// TestWalksNameFilesThatExist: each walk is there, and each file and folder that it names.
func TestWalksNameFilesThatExist(t *testing.T) {
	data, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(data), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		sections[title] = body
	}
	for _, title := range walks {
		named := 0
		for _, m := range quoted.FindAllStringSubmatch(sections[title], -1) {
			path := m[1]
			if !strings.Contains(path, "/") && filepath.Ext(path) != ".md" || strings.ContainsAny(path, " *") || strings.HasSuffix(path, ".Table") {
				continue // a name, a command, a type
			}
			named++
			if _, err := os.Stat(path); err != nil {
				t.Errorf("CONTRIBUTING.md, %q: %v", title, err)
			}
		}
		if named < 2 {
			t.Errorf("CONTRIBUTING.md, %q: names %d files, want a walk through them", title, named)
		}
	}
}
