package speaker

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMachineStops: a machine that shuts down hands its addresses over, as a drained one does;
// one that goes on leaves them to the agent that follows.
func TestMachineStops(t *testing.T) {
	for _, c := range []struct {
		name, says string
		drained    bool
		stops      bool // by systemd
		followed   bool
	}{
		{"running", "running", false, false, true},
		{"some unit has failed", "degraded", false, false, true},
		{"shutting down", "stopping", false, true, false},
		{"drained", "running", true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			program := "#!/bin/sh\n[ \"$*\" = is-system-running ] && echo " + c.says + "\n[ " + c.says + " = running ]\n"
			if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			if got := machineStops(dir); got != c.stops {
				t.Errorf("the machine stops: %v", got)
			}
			if machineStops(filepath.Join(dir, "none")) {
				t.Error("a machine without systemd stops")
			}
			n := &Speaker{systemd: dir}
			if c.drained {
				n.self.Unfit = "label"
			}
			if got := n.isFollowed(); got != c.followed {
				t.Errorf("another process follows: %v", got)
			}
		})
	}
}
