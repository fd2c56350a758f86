package house

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// namedDocument is a page of docs as text of any kind names it.
	namedDocument = regexp.MustCompile(`\bdocs/[a-zA-Z0-9/_-]+\.(?:md|yaml|svg|png|txt)\b`)
	heading       = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code          = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
)

// tracked are the files of the repository with one of these endings, or all of them.
func tracked(t *testing.T, endings ...string) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(out))
	return slices.DeleteFunc(files, func(file string) bool {
		info, err := os.Stat(file) // gone, but not yet for git; or a link to a folder
		return err != nil || info.IsDir() || len(endings) > 0 && !slices.Contains(endings, filepath.Ext(file))
	})
}

// anchors are the names that a page's headings have in links, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		all[name] = true
	}
	return all
}

// brokenLinks are the links in a Markdown file's text to files and headings that there aren't.
func brokenLinks(file, text string, read func(string) (string, error)) []string {
	var broken []string
	for _, m := range linkTarget.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		target, anchor, _ := strings.Cut(m[1], "#")
		page := text
		if target != "" {
			var err error
			if page, err = read(path.Join(path.Dir(file), target)); err != nil {
				broken = append(broken, m[1])
				continue
			}
		}
		if anchor != "" && !anchors(page)[anchor] {
			broken = append(broken, m[1])
		}
	}
	return broken
}

// readPage is a file's text; a folder's is empty.
func readPage(name string) (string, error) {
	if info, err := os.Stat(name); err != nil || info.IsDir() {
		return "", err
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// TestLinks: links of all documents lead to files and headings that there are.
func TestLinks(t *testing.T) {
	links := 0
	for _, file := range tracked(t, ".md") {
		text := read(t, file)
		links += len(linkTarget.FindAllString(text, -1))
		for _, link := range brokenLinks(file, text, readPage) {
			t.Errorf("%s: nothing is at %s", file, link)
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// TestBrokenLinks: TestLinks finds what is broken.
func TestBrokenLinks(t *testing.T) {
	pages := map[string]string{"docs/a/x.md": "# X\n", "docs/b.md": "## Two Words: `c`\n"}
	read := func(name string) (string, error) {
		if text, found := pages[name]; found {
			return text, nil
		}
		return "", os.ErrNotExist
	}
	text := "[a](x.md) [b](../b.md#two-words-c) [self](#here) [web](https://example.com/x) `[code](none.md)`\n# Here\n" +
		"[gone](y.md) [no heading](../b.md#three) [wrong folder](b.md)"
	want := []string{"y.md", "../b.md#three", "b.md"}
	if got := brokenLinks("docs/a/x.md", text, read); !slices.Equal(got, want) {
		t.Errorf("broken: %q, want %q", got, want)
	}
}

// TestNamedDocuments: pages of docs that code, scripts and manifests name are there.
func TestNamedDocuments(t *testing.T) {
	named := 0
	for _, file := range tracked(t, ".go", ".md", ".mk", ".yml", ".yaml", ".c", ".h", ".txt", ".sh", "") {
		if file == "test/house/links_test.go" || strings.Contains(file, "/testdata/") || file == "CHANGELOG.md" {
			continue // what was named so is history
		}
		for _, page := range namedDocument.FindAllString(read(t, file), -1) {
			named++
			if _, err := os.Stat(page); err != nil {
				if _, err := os.Stat(filepath.Join(filepath.Dir(file), page)); err != nil {
					t.Errorf("%s names %s, which isn't there", file, page)
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names were found", named)
	}
}

// TestEachDocumentIsListed: docs/README.md leads to each page, docs/decisions/README.md to each decision.
func TestEachDocumentIsListed(t *testing.T) {
	for _, file := range tracked(t, ".md", ".yaml") {
		if !strings.HasPrefix(file, "docs/") || filepath.Base(file) == "README.md" {
			continue
		}
		index := "docs/README.md"
		if strings.HasPrefix(file, "docs/decisions/") {
			index = "docs/decisions/README.md"
		}
		relative, err := filepath.Rel(filepath.Dir(index), file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(read(t, index), "("+relative+")") {
			t.Errorf("%s doesn't list %s", index, relative)
		}
	}
}
