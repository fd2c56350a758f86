package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDrawn: each picture is as its text says.
func TestDrawn(t *testing.T) {
	sources, err := filepath.Glob("../../../docs/pictures/*.pic")
	if err != nil || len(sources) < 6 {
		t.Fatalf("found %v: %v", sources, err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		want, err := draw(string(text))
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := os.ReadFile(strings.TrimSuffix(source, ".pic") + ".svg")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was changed since it was drawn (%v): go run ./hack/pictures/draw", source, err)
		}
	}
}

// TestMistakes: a line that can't be drawn is named.
func TestMistakes(t *testing.T) {
	for _, source := range []string{"size 1", "box a 1 2 x 4 text", "arrow a b", "circle 1 2", "box"} {
		if _, err := draw("size 10 10\n" + source); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v", source, err)
		}
	}
}
