package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestSleepsHaveReasons: a test waits for the thing itself (test/wait), or in a bubble of
// synctest. Where it sleeps all the same, a comment on that line says why.
func TestSleepsHaveReasons(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == "node_modules" {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, at := range unexplainedSleeps(t, path, nil) {
				t.Errorf("%s: a sleep without a reason on its line: wait for the thing itself (test/wait)", at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unexplainedSleeps are the calls of time.Sleep in a file that neither a comment nor a
// bubble of synctest explains. The source is read from the file if it is nil.
func unexplainedSleeps(t *testing.T, path string, source any) (found []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	explained := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			explained[files.Position(c.Pos()).Line] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		if isCall(call, "synctest", "Test") {
			return false
		}
		if at := files.Position(call.Pos()); isCall(call, "time", "Sleep") && !explained[at.Line] {
			found = append(found, at)
		}
		return true
	})
	return found
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is || method.Sel.Name != name {
		return false
	}
	of, is := method.X.(*ast.Ident)
	return is && of.Name == pkg
}

// TestUnexplainedSleeps: what the test above finds, and what it lets be.
func TestUnexplainedSleeps(t *testing.T) {
	const source = `package p

import "time"

func f() {
	time.Sleep(1)
	time.Sleep(2) // a reason
	synctest.Test(t, func() { time.Sleep(3) })
	for ; ; time.Sleep(4) {
	}
}
`
	found := unexplainedSleeps(t, "p_test.go", source)
	if len(found) != 2 || found[0].Line != 6 || found[1].Line != 9 {
		t.Errorf("found %v", found)
	}
}
