package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// properNames are the words with a capital that a log message may begin with, beside
// abbreviations such as DNS.
var properNames = []string{"Gateways", "MetalLB", "Service", "ServiceCIDRs", "Services", "FlowSchemas", "Pods", "Nodes", "PodDisruptionBudgets", "ResourceQuotas"}

// TestLogMessages: messages of logs begin alike, in lower case or with a name, have no
// prefix of their package, and no full stop. Their keys are sloglint's matter.
func TestLogMessages(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "bin" || path == "test") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for at, message := range logMessages(t, path, nil) {
			found++
			if fault := messageFault(message); fault != "" {
				t.Errorf("%s: %q: %s", at, message, fault)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 200 {
		t.Errorf("found only %d messages", found)
	}
}

// messageFault says what is wrong with a message, if something is.
func messageFault(message string) string {
	word, _, _ := strings.Cut(message, " ")
	if strings.HasSuffix(word, ":") && !strings.HasPrefix(word, "--") {
		return "a prefix: say it in the sentence, or by a key"
	}
	if strings.HasSuffix(message, ".") {
		return "a full stop at its end"
	}
	letters := []rune(strings.TrimSuffix(word, "'s"))
	if len(letters) > 1 && unicode.IsUpper(letters[0]) && unicode.IsLower(letters[1]) {
		for _, name := range properNames {
			if string(letters) == name {
				return ""
			}
		}
		return "it begins with a capital, and not with a name"
	}
	return ""
}

// logMessages are the messages of a file's calls of a logger, by their places.
func logMessages(t *testing.T, path string, source any) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	messages := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is || len(call.Args) == 0 {
			return true
		}
		method, is := call.Fun.(*ast.SelectorExpr)
		if !is || !isLogger(method.X) {
			return true
		}
		switch method.Sel.Name {
		case "Debug", "Info", "Warn", "Error":
			if literal, is := call.Args[0].(*ast.BasicLit); is && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				messages[files.Position(literal.Pos()).String()] = text
			}
		}
		return true
	})
	return messages
}

// isLogger says whether an expression is a logger by its name: slog, log, config.Log.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(x.Name), "log")
	case *ast.SelectorExpr:
		return strings.HasSuffix(strings.ToLower(x.Sel.Name), "log")
	}
	return false
}

// TestMessageFault: what the test above finds.
func TestMessageFault(t *testing.T) {
	const source = `package p

func f() {
	log.Warn("apiserver: list")
	log.Info("Programs of others")
	c.Log.Error("it failed.", "error", err)
	slog.Debug("DNS started")
	l.log.Info("MetalLB's speaker runs")
	b.log.Info("--mode: has no effect")
}
`
	faults := 0
	messages := logMessages(t, "p.go", source)
	for _, message := range messages {
		if messageFault(message) != "" {
			faults++
		}
	}
	if len(messages) != 6 || faults != 3 {
		t.Errorf("%d messages with %d faults, want 6 with 3", len(messages), faults)
	}
}
