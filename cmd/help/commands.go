package help

import (
	"strings"

	"github.com/spf13/cobra"
)

// commandGroup is commands that belong together.
type commandGroup struct {
	id, title string
	names     []string
}

var commandGroups = []commandGroup{
	{"try", "Try it:", []string{"lab"}},
	{"run", "Run it on machines of your own, or in a cluster:", []string{
		"up", "server", "join", "leave", "agent", "dns", "gateway", "addresses", "hook", "install", "uninstall",
	}},
	{"use", "Work with Services:", []string{"expose", "ls", "publish", "status", "announce", "drain", "kubectl", "ingress", "render"}},
	{"why", "When something doesn't answer:", []string{"explain", "doctor", "diff", "trace", "dump", "bundle", "flows", "web", "monitoring"}},
	{"keep", "Look after it:", []string{"token", "certs", "cleanup", "version", "completion", "help"}},
}

// Apply lays out the help of a command and of all below it. What has no example
// of its own gets the one of examples, by the command's path without the
// program's name, or that of the command above it.
func Apply(root *cobra.Command, examples map[string]string) {
	cobra.AddTemplateFunc("fairwayFlags", Flags)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(),
		"Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{fairwayFlags .}}"))
	for _, g := range commandGroups {
		used := false
		for _, c := range root.Commands() {
			for _, name := range g.names {
				if c.Name() == name {
					c.GroupID, used = g.id, true
				}
			}
		}
		if used || g.id == "keep" { // where cobra's own commands are
			root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		}
	}
	root.SetHelpCommandGroupID("keep")
	root.SetCompletionCommandGroupID("keep")
	addExamples(root, root.Name()+" ", examples)
}

func addExamples(c *cobra.Command, program string, examples map[string]string) {
	for _, sub := range c.Commands() {
		if sub.Example == "" {
			sub.Example = indent(examples[strings.TrimPrefix(sub.CommandPath(), program)])
		}
		if sub.Example == "" { // those of the group that it belongs to
			sub.Example = c.Example
		}
		addExamples(sub, program, examples)
	}
}

// indent puts lines where cobra's help has them.
func indent(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
