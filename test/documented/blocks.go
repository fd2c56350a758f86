package documented

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Block is a block of commands in a document.
type Block struct {
	File    string // below the repository's root
	Heading string // that it is under
	Text    string
}

// Place is where it is, as Runs has it.
func (b Block) Place() string { return b.File + "#" + b.Heading }

// command begins a line of a block that has no language and is for a shell.
var command = regexp.MustCompile(`^(sudo )?(\./)?(fairway|kubectl|helm|curl|install|make|go (test|run)|ip|[A-Z_]+=\S+ go) `)

// Blocks are the blocks of commands of all documents.
func Blocks(t *testing.T, root string) (list []Block) {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "node_modules" { // of the site
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			path, err = filepath.Rel(root, path)
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, blocksOf(file, string(text))...)
	}
	return list
}

func blocksOf(file, text string) (list []Block) {
	var heading, language string
	var block *strings.Builder
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && block == nil:
			block, language = &strings.Builder{}, fence
		case isFence:
			if language == "sh" || language == "" && command.MatchString(block.String()) {
				list = append(list, Block{file, heading, block.String()})
			}
			block = nil
		case block != nil:
			block.WriteString(line)
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return list
}
