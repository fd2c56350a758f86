package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackagesSayWhatTheyAre: every package has one package comment that begins
// as Go's do.
func TestPackagesSayWhatTheyAre(t *testing.T) {
	comments := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		comments[filepath.Dir(path)] += file.Doc.Text()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, comment := range comments {
		if !strings.HasPrefix(comment, "Package ") && !strings.HasPrefix(comment, "Command ") && !strings.Contains(comment, "generated") {
			t.Errorf("%s: the package comment is %q", dir, comment)
		}
	}
	if len(comments) < 5 {
		t.Errorf("only %d packages found", len(comments))
	}
}

// TestContributingNamesEveryPackage: the list of packages is complete.
func TestContributingNamesEveryPackage(t *testing.T) {
	contributing, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if found, err := filepath.Glob(e.Name() + "/*.go"); err != nil || len(found) == 0 {
			continue
		}
		if !strings.Contains(string(contributing), "`"+e.Name()+"/`") {
			t.Errorf("CONTRIBUTING.md doesn't name the package %s/", e.Name())
		}
	}
}
