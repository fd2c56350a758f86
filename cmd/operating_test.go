package cmd

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocumentedCommands: every command of these documents exists, with its
// flags and as many arguments.
func TestDocumentedCommands(t *testing.T) {
	for name, least := range map[string]int{"docs/how-to/installing": 3, "docs/how-to/operating": 10, "docs/how-to/machines": 10, "docs/how-to/hooks": 1, "docs/how-to/dns": 2,
		"docs/how-to/replacing-ingress-nginx": 4, "docs/how-to/loadbalancer": 4, "docs/how-to/ingress": 3, "README": 13} {
		t.Run(name, func(t *testing.T) { documentedCommands(t, "../"+name+".md", least) })
	}
}

// quoted is what a shell makes one word of; diagrams have names of commands too.
var quoted = regexp.MustCompile(`\$\(.*\)|'[^']*'|^   +fairway`)

func documentedCommands(t *testing.T, file string, least int) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, block := range strings.Split(string(text), "```") {
		if i%2 == 0 { // outside of blocks
			continue
		}
		for _, line := range strings.Split(block, "\n") {
			line, _, _ = strings.Cut(line, "#")
			line, _, _ = strings.Cut(line, " >") // where the shell puts what is printed
			line = quoted.ReplaceAllString(line, "WORD")
			if _, piped, found := strings.Cut(line, "| sudo "); found { // a token on standard input
				line = strings.ReplaceAll(piped, "--token-file -", "")
			}
			line = strings.ReplaceAll(line, "--token-file /root/token", "")
			args := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "sudo "))
			if len(args) < 2 || args[0] != "fairway" {
				continue
			}
			found++
			root := &cobra.Command{Use: "fairway"}
			root.AddCommand(commands()...)
			c, rest, err := root.Find(args[1:])
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil || !c.Runnable() {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if found < least {
		t.Errorf("found %d commands only", found)
	}
}
