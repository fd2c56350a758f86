package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDockerfile: the image is held to what can be known of it without building
// it; see TestImage for the rest, and TestAgentOnly for what the binary holds.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	lines := instructions(string(text))
	if stages := matching(lines, `^FROM `); len(stages) != 3 || !strings.HasSuffix(stages[0], " AS build") || stages[2] != "FROM scratch" {
		t.Errorf("stages: %q", stages)
	}
	gomod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(gomod)
	if version == nil || len(matching(lines, `^FROM golang:`+regexp.QuoteMeta(string(version[1]))+`-`)) != 1 {
		t.Errorf("go.mod wants Go %s; stages are %q", version, matching(lines, `^FROM`))
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	symbol := regexp.MustCompile(`-X (\S+)=`)
	build := matching(lines, `^RUN CGO_ENABLED=0 go build .* -tags agentonly .* -o /out/fairway \.$`)
	if len(build) != 1 {
		t.Fatalf("lines that build an agent: %q", build)
	}
	if a, b := symbol.FindStringSubmatch(build[0]), symbol.FindSubmatch(makefile); a == nil || b == nil || a[1] != string(b[1]) {
		t.Errorf("the version is put into %q, by make into %q", a, b)
	}
	if len(matching(lines, `^COPY --from=build /out/fairway /usr/local/bin/fairway$`)) != 1 ||
		!slices.Contains(lines, `ENTRYPOINT ["/usr/local/bin/fairway"]`) {
		t.Error("the binary that is built isn't the one that is run")
	}
	for _, l := range lines {
		if word, _, _ := strings.Cut(l, " "); !slices.Contains([]string{"FROM", "WORKDIR", "COPY", "RUN", "ARG", "ENV", "ENTRYPOINT", "CMD"}, word) {
			t.Errorf("not an instruction: %q", l)
		}
	}
}

// instructions are the lines of a Dockerfile, put together where continued.
func instructions(text string) []string {
	var list []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

func matching(lines []string, pattern string) []string {
	re := regexp.MustCompile(pattern)
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !re.MatchString(l) })
}
