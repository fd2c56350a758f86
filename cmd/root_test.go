//go:build !agentonly

package cmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestUnknownSubcommands(t *testing.T) {
	for line, want := range map[string]string{
		"token lst":     `fairway token has no command "lst": did you mean list?`,
		"token nothing": `fairway token has no command "nothing": see fairway token --help`,
		"token":         "",
		"token --help":  "",
		"tokn list":     `unknown command "tokn" for "fairway"`,
	} {
		root := &cobra.Command{Use: "fairway", SilenceUsage: true, SilenceErrors: true}
		root.AddCommand(commands()...)
		refuseUnknown(root)
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		if want == "" {
			if err != nil || !strings.Contains(out.String(), "Usage:") {
				t.Errorf("%s: %v\n%s", line, err, out.String())
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
