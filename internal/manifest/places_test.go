package manifest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPlaces(t *testing.T) {
	folder := t.TempDir()
	text := `# a comment
---
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: cart}
- apiVersion: v1
  kind: Node
  metadata: {name: node1}
---
not: [YAML
---
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last"}}
`
	file := filepath.Join(folder, "all.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("kind: Service\nmetadata: {name: none}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{file, folder} {
		places := Places(from)
		for name, line := range map[string]int{"Service default/web": 3, "Service shop/cart": 10, "Node node1": 13, "ConfigMap default/last": 19} {
			if want := (Place{file, line}); places[name] != want {
				t.Errorf("%s is at %v, want %v", name, places[name], want)
			}
		}
		if _, there := places["Service default/none"]; there {
			t.Errorf("%s: a file that isn't read has a place", from)
		}
	}
	if places := Places("-", filepath.Join(folder, "none")); len(places) > 0 {
		t.Errorf("places of nothing: %v", places)
	}
}
