package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestPure: nothing here looks at a clock, waits, or draws numbers that it wasn't given.
func TestPure(t *testing.T) {
	impure := map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"rand": {"N", "IntN", "Int64N", "Uint64", "Float64", "Perm", "Shuffle"},
	}
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) < 10 {
		t.Fatalf("source: %v (%v)", names, err)
	}
	files := token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := s.X.(*ast.Ident)
			for _, name := range impure[identOf(of, ok)] {
				if s.Sel.Name == name {
					t.Errorf("%s: %s.%s", files.Position(s.Pos()), of.Name, name)
				}
			}
			return true
		})
	}
}

func identOf(i *ast.Ident, ok bool) string {
	if !ok {
		return ""
	}
	return i.Name
}
