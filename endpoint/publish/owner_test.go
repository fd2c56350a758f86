package publish

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyRootSaysWhatIsRun: a check that runs something comes from a file that
// nobody but root can have written; others of the same file stand.
func TestOnlyRootSaysWhatIsRun(t *testing.T) {
	for name, of := range map[string]struct {
		file, folder os.FileMode
		owner        int
		text         string
		taken        bool
	}{
		"root's":               {0o644, 0o755, 0, "check: exec:true", true},
		"writable by a group":  {0o664, 0o755, 0, "check: exec:true", false},
		"writable by all":      {0o646, 0o755, 0, "check: exec:true", false},
		"in a folder for all":  {0o644, 0o777, 0, "check: exec:true", false},
		"somebody else's":      {0o644, 0o755, 4242, "check: exec:true", false},
		"a unit of all":        {0o666, 0o755, 0, "unit: nginx.service", false},
		"a unit of root's":     {0o644, 0o755, 0, "unit: nginx.service", true},
		"others of all's file": {0o666, 0o777, 4242, "check: tcp", true},
	} {
		if of.owner != 0 && os.Geteuid() != 0 {
			continue // files can't be given away
		}
		folder := t.TempDir()
		path := filepath.Join(folder, "web.yaml")
		if err := os.WriteFile(path, []byte("name: web\nport: 80\n"+of.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]os.FileMode{path: of.file, folder: of.folder} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if of.owner != 0 {
			if err := os.Chown(path, of.owner, -1); err != nil {
				t.Fatal(err)
			}
		}
		entries, problems, err := ReadFolder(folder)
		if err != nil || (len(entries) == 1) != of.taken || (len(problems) == 0) != of.taken {
			t.Errorf("%s: %v, %v, %v", name, entries, problems, err)
		}
		if problem := problems["web.yaml"]; !of.taken && (problem == nil || !strings.Contains(problem.Error(), "web.yaml: check")) {
			t.Errorf("%s: %v names no file and field", name, problem)
		}
	}
}
