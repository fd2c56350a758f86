package diagnosis

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/cmd/exit"
)

// TestDiffCannotTell: without files, without an API and with a bad format the exit code is 2, and the
// error says why.
func TestDiffCannotTell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, args := range map[string][]string{
		"--filename":      {},
		"--output":        {"-f", file, "-o", "sarif"},
		"127.0.0.1:1":     {"-f", file, "--kubeconfig", kubeconfig},
		"none.kubeconfig": {"-f", file, "--kubeconfig", "none.kubeconfig"},
	} {
		c := Diff()
		c.SetArgs(args)
		c.SilenceUsage, c.SilenceErrors = true, true
		err := c.ExecuteContext(t.Context())
		var exit exit.Error
		if !errors.As(err, &exit) || exit.Code != 2 || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want exit code 2 and %q", args, err, says)
		}
	}
}
