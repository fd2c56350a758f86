// Package documented reads for tests what the docs promise.
package documented

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Metrics are those that docs/how-to/replacing-kube-proxy.md goes through,
// with whether it says that they are here.
func Metrics(t *testing.T, root string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/how-to/replacing-kube-proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `((?:kubeproxy|kubernetes|rest_client|process)_[a-z_]+)` \\| [^|]+ \\| [^|]+ \\| ([^|]+) \\|$")
	found := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if m := row.FindStringSubmatch(lines.Text()); m != nil {
			found[m[1]] = !strings.HasPrefix(m[2], "no:")
		}
	}
	return found
}
