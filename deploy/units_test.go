package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestUnits has systemd read the units: unknown settings and bad values are
// errors. The binary is this one, which is there.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("systemd-analyze is needed (package systemd): ", err)
	}
	units, err := filepath.Glob("systemd/*.service")
	if err != nil || len(units) != 5 {
		t.Fatalf("units: %v, %v", units, err)
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("\nExecStart=/usr/local/bin/fairway ")) {
			t.Errorf("%s starts something else", unit)
		}
		path := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte("/usr/local/bin/fairway"), []byte(os.Args[0])), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	out, err := exec.Command(analyze, args...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
