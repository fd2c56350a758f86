package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// siblings are folders that do the same thing in different ways. In each of them
// the same file holds the same function or method, so who knows one of them finds
// the way in the next.
var siblings = []struct {
	folders string // as filepath.Glob has them
	among   string // the file that every sibling has
	files   map[string][]string
}{
	{"dataplane/*", "plane.go", map[string][]string{
		"doc.go":         {},
		"plane.go":       {"New", "Plane.Prepare", "Plane.Close"},
		"apply.go":       {"Plane.Apply", "Plane.apply"},
		"readback.go":    {"Plane.Read"},
		"render.go":      {"Render", "Plane.objects"},
		"remove.go":      {"Plane.Remove"},
		"connections.go": {"Plane.Connections"},
		"unsupported.go": {"Plane.Unsupported"},
	}},
	{"ingress/engine/*", "engine.go", map[string][]string{
		"engine.go": {"New", "Engine.Inherit", "Engine.Apply", "Engine.Sockets", "Engine.Listeners", "Engine.Close"},
	}},
	{"controller/*", "controller.go", map[string][]string{
		"controller.go": {"New", "Controller.Run"},
	}},
}

// TestSiblingsLookAlike: each sibling has each file, and each file what it is for.
func TestSiblingsLookAlike(t *testing.T) {
	for _, family := range siblings {
		found, err := filepath.Glob(family.folders + "/" + family.among)
		if err != nil || len(found) < 2 {
			t.Errorf("%s with %s: %v, error %v: want at least two siblings", family.folders, family.among, found, err)
		}
		for _, path := range found {
			folder := filepath.Dir(path)
			for _, file := range slices.Sorted(maps.Keys(family.files)) {
				declared, err := functionsOf(filepath.Join(folder, file))
				if err != nil {
					t.Errorf("%s lacks %s, which its siblings have: %v", folder, file, err)
				}
				for _, name := range family.files[file] {
					if err == nil && !slices.Contains(declared, name) {
						t.Errorf("%s: %s isn't in %s, where its siblings have it", folder, name, file)
					}
				}
			}
		}
	}
}

// TestEveryFolderIsASibling: a plane without plane.go, or an engine without engine.go,
// is seen too.
func TestEveryFolderIsASibling(t *testing.T) {
	for folder, marks := range map[string]string{"dataplane/*": "plane.go", "ingress/engine/*": "engine.go"} {
		found, err := filepath.Glob(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range found {
			files, err := filepath.Glob(dir + "/*.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == marks {
					continue
				}
				declared, err := functionsOf(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"Plane.Apply", "Engine.Apply"} {
					if _, err := os.Stat(filepath.Join(dir, marks)); err != nil && slices.Contains(declared, name) {
						t.Errorf("%s has %s and no %s", file, name, marks)
					}
				}
			}
		}
	}
}

// functionsOf are the functions of a file, and its methods as "Type.Method".
func functionsOf(path string) (names []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if base, ok := receiver.(*ast.Ident); ok {
				name = base.Name + "." + name
			}
		}
		names = append(names, name)
	}
	return names, nil
}
