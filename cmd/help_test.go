//go:build !agentonly

package cmd

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/cmd/help"
	"github.com/fairway-net/fairway/internal/version"
)

// each calls visit with every command that help shows.
func each(c *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			visit(sub)
			each(sub, visit)
		}
	}
}

// TestHelp: every command is in a group and has examples, which are command
// lines of it; of many flags each is in a group.
func TestHelp(t *testing.T) {
	root, seen := newRoot(), map[string]bool{}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.GroupID == "" {
			t.Errorf("%s is in no group", c.Name())
		}
		if seen[c.Name()] {
			t.Errorf("%s is there twice", c.Name())
		}
		seen[c.Name()] = true
	}
	each(root, func(c *cobra.Command) {
		if c.Example == "" {
			t.Errorf("%s: no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			checkExample(t, c, line)
		}
		checkGroups(t, c)
	})
	for path := range examples {
		if c, _, err := root.Find(strings.Fields(path)); err != nil || c.CommandPath() != "fairway "+path {
			t.Errorf("there are examples of %q, which is no command", path)
		}
	}
}

// checkExample has the shell split a line, and the command it names read it.
func checkExample(t *testing.T, c *cobra.Command, line string) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "sudo ")
	_, args, ok := strings.Cut(line, "fairway ")
	if !ok || strings.HasPrefix(line, "ln ") {
		return
	}
	args, _, _ = strings.Cut(args, " | ")
	for _, file := range []string{" --token-file -", " --token-file /root/token"} { // which is read with the flag
		args = strings.ReplaceAll(args, file, "")
	}
	words, err := exec.Command("sh", "-c", "printf '%s\\n' "+args).Output()
	if err != nil {
		t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
		return
	}
	list := strings.Split(strings.TrimSuffix(string(words), "\n"), "\n")
	root := newRoot()
	found, rest, err := root.Find(list)
	if err == nil && !found.DisableFlagParsing {
		if err = found.ParseFlags(rest); err == nil {
			err = found.ValidateArgs(found.Flags().Args())
		}
	}
	if err != nil {
		t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
	}
}

func checkGroups(t *testing.T, c *cobra.Command) {
	text := help.Flags(c)
	if strings.HasPrefix(text, "Flags:") || c.HasParent() && c.Parent().Name() != "fairway" {
		return
	}
	if !slices.Contains([]string{"up", "server", "agent", "join"}, c.Name()) {
		return
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" && f.Name != "version" && help.GroupOf(c.Name(), f.Name) == help.Other {
			t.Errorf("%s --%s is in no group", c.CommandPath(), f.Name)
		}
	})
}

func TestVersionFlag(t *testing.T) {
	out := run(t, "--version")
	if out != "fairway "+version.Version+"\n" {
		t.Errorf("--version prints %q", out)
	}
}

// run runs a command line and returns what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		t.Errorf("fairway %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// TestManual: a page for each command, the same every time, that names no machine.
func TestManual(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	run(t, "man", first)
	run(t, "man", second)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	each(newRoot(), func(c *cobra.Command) {
		page := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		text, err := os.ReadFile(filepath.Join(first, page))
		if err != nil || !bytes.HasPrefix(text, []byte(".nh\n.TH")) {
			t.Errorf("page of %s: %v: %.40s", c.CommandPath(), err, text)
		}
		again, err := os.ReadFile(filepath.Join(second, page))
		if err != nil || !bytes.Equal(text, again) {
			t.Errorf("page of %s differs the second time (%v)", c.CommandPath(), err)
		}
		if bytes.Contains(text, []byte(`="`+host+`"`)) {
			t.Errorf("page of %s names this machine", c.CommandPath())
		}
	})
}
