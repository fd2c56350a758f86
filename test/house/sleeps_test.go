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

// mostSleeps is how many tests may sleep with a reason, outside bubbles of synctest. Who needs
// another one finds one that can wait for the thing itself.
const mostSleeps = 37

// TestSleepsHaveReasons: a test waits for the thing itself (test/wait), or in a bubble of
// synctest. Where it sleeps all the same, a comment on that line says why.
func TestSleepsHaveReasons(t *testing.T) {
	explained := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == "node_modules" {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			with, without := sleeps(t, path, nil)
			explained += len(with)
			for _, at := range without {
				t.Errorf("%s: a sleep without a reason on its line: wait for the thing itself (test/wait)", at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if explained > mostSleeps {
		t.Errorf("tests sleep at %d places, and may at %d", explained, mostSleeps)
	}
}

// sleeps are the calls of time.Sleep in a file outside bubbles of synctest, with a comment and
// without. A function that bubbles call says so: "the bubble's time". The source is read from the
// file if it is nil.
func sleeps(t *testing.T, path string, source any) (explained, unexplained []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[int]string{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			comments[files.Position(c.Pos()).Line] = c.Text
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
		if !isCall(call, "time", "Sleep") {
			return true
		}
		at := files.Position(call.Pos())
		switch reason := comments[at.Line]; {
		case reason == "":
			unexplained = append(unexplained, at)
		case !strings.Contains(reason, "the bubble's time"):
			explained = append(explained, at)
		}
		return true
	})
	return explained, unexplained
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is || method.Sel.Name != name {
		return false
	}
	of, is := method.X.(*ast.Ident)
	return is && of.Name == pkg
}

// TestSleeps: what the test above finds, and what it lets be.
func TestSleeps(t *testing.T) {
	const source = `package p

import "time"

func f() {
	time.Sleep(1)
	time.Sleep(2) // a reason
	synctest.Test(t, func() { time.Sleep(3) })
	for ; ; time.Sleep(4) {
	}
	time.Sleep(5) // the bubble's time
}
`
	explained, found := sleeps(t, "p_test.go", source)
	if len(found) != 2 || found[0].Line != 6 || found[1].Line != 9 {
		t.Errorf("without a reason: %v", found)
	}
	if len(explained) != 1 || explained[0].Line != 7 {
		t.Errorf("with a reason: %v", explained)
	}
}
