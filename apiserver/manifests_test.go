package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/oldapi"
)

// TestManifests applies manifests as people have them from documents of many years,
// as fairway kubectl convert writes them.
func TestManifests(t *testing.T) {
	s := sharedServer(t)
	files, err := filepath.Glob("testdata/manifests/*.yaml")
	if err != nil || len(files) != 9 {
		t.Fatalf("there are %d manifests, %v", len(files), err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var present strings.Builder
		if err := oldapi.ConvertAll(strings.NewReader(string(manifest)), &present); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		out := kubectl(t, s, present.String(), "apply", "-f", "-")
		if objects := strings.Count(string(manifest), "kind:"); strings.Count(out, "created") != objects {
			t.Errorf("%s: want %d objects created, got\n%s", file, objects, out)
		}
		kubectl(t, s, present.String(), "delete", "-f", "-")
	}
}
