//go:build !agentonly

package cmd

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateReference = flag.Bool("update-reference", false, "write docs/reference/commands.md")

const referencePage = "../docs/reference/commands.md"

// TestReference: docs/reference/commands.md lists every command that help shows, with its flags; `make
// generate` writes it.
func TestReference(t *testing.T) {
	want := reference(newRoot())
	if *updateReference {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s isn't what commands and flags say: make generate", referencePage)
	}
}

// reference is the page.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("<!-- Generated from the commands themselves: make generate. -->\n\n# Commands and flags\n")
	each(root, func(c *cobra.Command) {
		if !c.Runnable() {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n    %s\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."), c.UseLine())
		var rows []string
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" {
				rows = append(rows, row(f))
			}
		})
		if len(rows) > 0 {
			b.WriteString("\n| flag | default | |\n|---|---|---|\n" + strings.Join(rows, ""))
		}
	})
	return b.String()
}

func row(f *pflag.Flag) string {
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + "`, " + name
	}
	value := f.DefValue
	if value != "" {
		value = "`" + value + "`"
	}
	_, usage := pflag.UnquoteUsage(f)
	return fmt.Sprintf("| %s | %s | %s |\n", name, value, strings.NewReplacer("|", `\|`, "\n", " ").Replace(usage))
}

// flagSetter is a method of pflag.FlagSet that binds a flag to a variable.
var flagSetter = regexp.MustCompile(`^(String|Bool|Int|Uint16|Duration|StringSlice|StringArray|Count)?VarP?$`)

// TestEveryFlagIsRead: what a flag sets is read somewhere else in the commands or in the
// configurations of roles, or is a field of another package's configuration.
func TestEveryFlagIsRead(t *testing.T) {
	uses := map[string]int{} // of fields and variables, by name
	declared, bound := map[string]bool{}, map[string]string{}
	for _, name := range goFiles(t, ".", "../config") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.Field: // that it is declared is no use of it
				for _, id := range x.Names {
					uses[id.Name]--
					declared[id.Name] = true
				}
			case *ast.ValueSpec: // likewise
				for _, id := range x.Names {
					uses[id.Name]--
					declared[id.Name] = true
				}
			case *ast.AssignStmt: // nor that it is given a value
				for _, e := range x.Lhs {
					if id, is := e.(*ast.Ident); is {
						uses[id.Name]--
						declared[id.Name] = declared[id.Name] || x.Tok == token.DEFINE
					}
				}
			case *ast.KeyValueExpr: // likewise
				if id, is := x.Key.(*ast.Ident); is {
					uses[id.Name]--
				}
			case *ast.Ident:
				uses[x.Name]++
			case *ast.CallExpr:
				if of, flag := binding(x); of != "" {
					bound[flag] = of
					uses[of]-- // nor that a flag sets it
				}
			}
			return true
		})
	}
	if len(bound) < 150 {
		t.Fatalf("only %d flags were found", len(bound))
	}
	for flag, of := range bound {
		if declared[of] && uses[of] <= 0 {
			t.Errorf("--%s sets %s, which nothing reads", flag, of)
		}
	}
}

// goFiles are the files of folders, without tests.
func goFiles(t *testing.T, folders ...string) (names []string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				names = append(names, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// binding is the variable or field that a call binds a flag to; "" if it binds none.
func binding(call *ast.CallExpr) (of, flag string) {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is || !flagSetter.MatchString(method.Sel.Name) || len(call.Args) < 3 {
		return "", ""
	}
	name, is := call.Args[1].(*ast.BasicLit)
	if !is {
		return "", ""
	}
	ast.Inspect(call.Args[0], func(n ast.Node) bool { // it may be in a value of a type of its own
		address, pointer := n.(*ast.UnaryExpr)
		if !pointer {
			return true
		}
		switch x := address.X.(type) {
		case *ast.SelectorExpr:
			of = x.Sel.Name
		case *ast.Ident:
			of = x.Name
		}
		return of == ""
	})
	return of, strings.Trim(name.Value, `"`)
}
