// Command readings draws places of the source for a reader who doesn't know it, who says
// of each, without opening another file, what it does and which package it is in. The
// same seed and round draw the same places of the same commit.
//
//	go run ./test/readings -seed 4519 -round 1
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// around is how many lines a reader sees before and behind a place.
const around = 20

// generated is in the head of files that nobody writes (go.dev/s/generatedcode).
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func main() {
	log.SetFlags(0)
	seed := flag.Uint64("seed", 4519, "the seed of the draw")
	round := flag.Uint64("round", 1, "which round: each draws other places")
	count := flag.Int("count", 10, "how many places")
	flag.Parse()
	files, err := sources()
	if err != nil {
		log.Fatal(err)
	}
	draw := rand.New(rand.NewPCG(*seed, *round))
	for i := range *count {
		f, line := place(files, draw)
		fmt.Printf("== %d: %s:%d\n%s\n", i+1, f.name, line, f.excerpt(line))
	}
}

// source is a file that people wrote.
type source struct {
	name  string
	lines []string
}

// sources are the Go and C files of the repository, tests among them.
func sources() ([]source, error) {
	out, err := exec.Command("git", "ls-files", "-z", "*.go", "*.c", "*.h").Output()
	if err != nil {
		return nil, fmt.Errorf("list the repository's files: %w", err)
	}
	var files []source
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read a source: %w", err)
		}
		if !generated.Match(text[:min(len(text), 1000)]) && !strings.Contains(name, "testdata/") {
			files = append(files, source{name, strings.Split(strings.TrimRight(string(text), "\n"), "\n")})
		}
	}
	return files, nil
}

// place draws a line of all lines.
func place(files []source, draw *rand.Rand) (source, int) {
	total := 0
	for _, f := range files {
		total += len(f.lines)
	}
	at := draw.IntN(total)
	for _, f := range files {
		if at < len(f.lines) {
			return f, at + 1
		}
		at -= len(f.lines)
	}
	panic("unreachable: at is less than the sum of all lines")
}

// excerpt is what a reader sees of a place: the lines around it, with their numbers.
func (f source) excerpt(line int) string {
	var b strings.Builder
	for n := max(1, line-around); n <= min(len(f.lines), line+around); n++ {
		mark := " "
		if n == line {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s%5d  %s\n", mark, n, f.lines[n-1])
	}
	return b.String()
}
