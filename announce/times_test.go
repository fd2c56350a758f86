package announce

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTimes: docs/explanation/announcing.md has every time constant of announcing, with its value
// and a reason, and no other.
func TestTimes(t *testing.T) {
	text, err := os.ReadFile("../docs/explanation/announcing.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([a-z0-9]+\\.[A-Za-z0-9]+)` \\| ([0-9a-zµ.]+) \\| .+ \\|$")
	var told []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if m := row.FindStringSubmatch(lines.Text()); m != nil {
			told = append(told, m[1]+" "+m[2])
		}
	}
	there := times(t)
	slices.Sort(told)
	for _, constant := range there {
		if !slices.Contains(told, constant) {
			t.Errorf("the page doesn't have `%s`", constant)
		}
	}
	for _, constant := range told {
		if !slices.Contains(there, constant) {
			t.Errorf("the page has `%s`, which isn't there", constant)
		}
	}
}

// times lists the constants below this directory that are durations, with their values.
func times(t *testing.T) []string {
	t.Helper()
	files := token.NewFileSet()
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		packages[filepath.Dir(name)] = append(packages[filepath.Dir(name)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	only := onlyTime{importer.ForCompiler(files, "source", nil)}
	var list []string
	for dir, parsed := range packages {
		info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: only, Error: func(error) {}} // the rest of a package is of no interest
		_, _ = config.Check(dir, files, parsed, info)
		for _, o := range info.Defs {
			c, ok := o.(*types.Const)
			if !ok || c.Type().String() != "time.Duration" {
				continue
			}
			d, _ := constant.Int64Val(c.Val())
			name := path.Base(dir)
			if dir == "." {
				name = "announce"
			}
			list = append(list, name+"."+c.Name()+" "+time.Duration(d).String())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// onlyTime imports time, and nothing else.
type onlyTime struct{ types.Importer }

func (i onlyTime) Import(name string) (*types.Package, error) {
	if name == "time" {
		return i.Importer.Import(name)
	}
	return types.NewPackage(name, path.Base(name)), nil
}
