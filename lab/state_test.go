package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMakeDir: nobody but root looks into a lab, whose kubeconfig is an administrator's.
func TestMakeDir(t *testing.T) {
	above := filepath.Join(t.TempDir(), "fairway")
	dir := filepath.Join(above, "lab")
	for range 2 { // the second time it is there, as earlier versions made it
		if err := makeDir(dir); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{dir: 0o700, above: 0o755} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has mode %o, expected %o", path, got, want)
			}
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
