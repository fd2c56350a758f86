//go:build !agentonly

package cmd

import (
	"strings"
	"testing"

	"github.com/fairway-net/fairway/test/documented"
)

// TestTutorialLines: the tutorials that take more than one machine have readers type what README.md
// does, whose lines other tests run.
func TestTutorialLines(t *testing.T) {
	run, tutorials := map[string]bool{}, 0
	blocks := documented.Blocks(t, "..")
	for _, b := range blocks {
		if b.File == "README.md" {
			for _, line := range typed(b) {
				run[line] = true
			}
		}
	}
	for _, b := range blocks {
		if documented.Runs[b.Place()] != "TestTutorialLines" {
			continue
		}
		tutorials++
		for _, line := range typed(b) {
			if !run[line] {
				t.Errorf("%s has %q, README.md doesn't", b.Place(), line)
			}
		}
	}
	if tutorials == 0 {
		t.Error("no tutorial has lines of README.md")
	}
}

// typed are the lines of a block, without the comments behind them.
func typed(b documented.Block) (lines []string) {
	for line := range strings.Lines(b.Text) {
		line, _, _ = strings.Cut(line, "  #")
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}
