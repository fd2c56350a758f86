//go:build undone

package simulate

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// edit replaces a text of a file once.
type edit struct{ file, from, to string }

// undone are mends of faults that were found in announcers, each with what takes it back.
var undone = map[string][]edit{
	"who sends a captured frame once more is taken for its sender": {
		{"announce/link/cluster.go", "case err != nil, m.MAC != source, ", "case err != nil, "},
		{"announce/link/cluster.go", "\t\treturn func() bool {", "\t\tm.MAC = source\n\t\treturn func() bool {"},
		{"announce/link/peers.go", "\tm := p.byNode[h.Node]\n\tswitch {", "\tm := p.byNode[h.Node]\n\tif m != nil && m.mac != h.MAC {\n\t\tm.mac, p.byMAC[h.MAC] = h.MAC, h.Node\n\t}\n\tswitch {"},
	},
	"a node without the key keeps its addresses": {{"announce/link/peers.go", "due := !dropped.IsZero() &&", "due := false &&"}},
	"an address of a slow machine is claimed again and again": {
		{"announce/core/conflicts.go", "return c.before[a].times > 0", "return false"},
		{"announce/core/conflicts.go", "if h.times < 5 {", "if pause = firstPause; false {"},
	},
	"conflicts after the claim are never seen": {
		{"announce/core/conflicts.go", "if c != nil && c.confirmed && !c.announced.IsZero() {", "if c != nil && c.confirmed {\n\t\treturn\n\t}\n\tif false {"},
	},
	"numbers of processes go back with the clock": {{"announce/link/incarnation.go", "max(i.last+1, uint64(max(now.UnixNano(), 0)))", "uint64(max(now.UnixNano(), 0))"}},
	"connections aren't kept by former owners":    {{"announce/core/keepers.go", "s.Keeps = e.keeps && !e.anywhere[s.Address]", "s.Keeps = false"}},
}

// TestUndone: the simulation finds each of these faults when its mend is undone.
func TestUndone(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for fault, edits := range undone {
		t.Run(fault, func(t *testing.T) {
			dir, replaced := t.TempDir(), map[string]string{}
			for _, e := range edits {
				name := filepath.Join(root, e.file)
				from := name
				if replaced[name] != "" {
					from = replaced[name]
				}
				text, err := os.ReadFile(from)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Count(string(text), e.from) != 1 {
					t.Fatalf("%s has not once %q", e.file, e.from)
				}
				replaced[name] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
				if err := os.WriteFile(replaced[name], []byte(strings.Replace(string(text), e.from, e.to, 1)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replaced})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(file, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-overlay", file, "-count=1", "-run", "^TestSimulate$", ".")
			cmd.Env = append(os.Environ(), "FAIRWAY_SIMULATE=2000")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "seed ") {
				t.Errorf("it isn't found (%v):\n%s", err, out)
			}
		})
	}
}
