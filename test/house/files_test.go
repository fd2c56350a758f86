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

// writersOfTheirOwn are the files whose code writes without internal/keptfile, and why.
// What is in a folder that ends with a slash may.
var writersOfTheirOwn = map[string]string{
	"internal/keptfile/":               "the writer itself",
	"internal/tuning/":                 "settings of the kernel",
	"internal/lvs/sysctl.go":           "settings of the kernel",
	"internal/routelocalnet/":          "a setting of the kernel",
	"internal/legacytrace/":            "settings of the kernel",
	"announce/l2/kernelarp.go":         "settings of the kernel",
	"agent/init.go":                    "a setting of the kernel",
	"apiserver/snapshot.go":            "a stream, which is synced before it has its name",
	"kube/lastknown/store.go":          "a log that grows",
	"ingress/engine/haproxy/reload.go": "a folder that a haproxy gets once it is whole",
	"dns/machine/machine.go":           "a link, and resolv.conf where it is a mount",
	"diagnose/agentlink/server.go":     "a socket",
	"dataplane/ebpf/":                  "pins of the kernel's",
	"lab/":                             "a lab's folders, which go with it",
	"hack/":                            "generators",
	"test/":                            "tests",
	"tools/":                           "tools",
}

// writing are the functions that write a file in place, or put one in its place.
var writing = map[string][]string{
	"os":        {"WriteFile", "Create", "CreateTemp", "Rename"},
	"clientcmd": {"WriteToFile"},
	"ioutil":    {"WriteFile"},
}

// TestFilesAreKept: who writes a file that is to last does it by internal/keptfile, so
// that a crash or a full disk leaves the old one or the new one.
func TestFilesAreKept(t *testing.T) {
	excused := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == "node_modules" {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found := writes(t, path, nil)
		for place := range writersOfTheirOwn {
			if path == place || strings.HasSuffix(place, "/") && strings.HasPrefix(path, place) {
				excused[place] = excused[place] || len(found) > 0
				return nil
			}
		}
		for _, at := range found {
			t.Errorf("%s: a file is written without internal/keptfile; what needn't last is listed with its reason in this test", at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for place, used := range excused {
		if !used {
			t.Errorf("%s writes nothing any more: take it off the list", place)
		}
	}
}

// writes are the calls of a file that write files.
func writes(t *testing.T, path string, source any) (found []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		for pkg, names := range writing {
			for _, name := range names {
				if isCall(call, pkg, name) {
					found = append(found, files.Position(call.Pos()))
				}
			}
		}
		return true
	})
	return found
}

// TestWrites: what the test above finds.
func TestWrites(t *testing.T) {
	const source = `package p

import "os"

func f() {
	os.WriteFile("a", nil, 0)
	os.ReadFile("a")
	os.Rename("a", "b")
}
`
	found := writes(t, "p.go", source)
	if len(found) != 2 || found[0].Line != 6 || found[1].Line != 8 {
		t.Errorf("found %v, want the lines 6 and 8", found)
	}
}
