//go:build !agentonly

package cmd

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
)

func TestUnknownSubcommands(t *testing.T) {
	for line, want := range map[string]string{
		"token lst":     `fairway token has no command "lst": did you mean list?`,
		"token nothing": `fairway token has no command "nothing": see fairway token --help`,
		"token":         "",
		"token --help":  "",
		"tokn list":     `unknown command "tokn" for "fairway"`,
	} {
		root := newRoot()
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

// TestNames: links to the program are what their names say.
func TestNames(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"/usr/bin/fairway", "token --help", "\n  fairway token [command]"},
		{"/usr/bin/kubectl-fairway", "token --help", "\n  kubectl fairway token [command]"},
		{"/usr/bin/kubectl_complete-fairway", "agent --mode us", "userspace\n"},
	} {
		var out bytes.Buffer
		root := calledAs(c.name, strings.Fields(c.line))
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s %s: %v\n%s", c.name, c.line, err, out.String())
		}
	}
}

// TestKubectlLink: a link named kubectl is kubectl, which prints by itself.
func TestKubectlLink(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args, stdout := os.Args, os.Stdout
	os.Stdout = writer
	err = calledAs("/usr/bin/kubectl", []string{"__complete", "rollout", "st"}).Execute()
	os.Args, os.Stdout = args, stdout
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	out, readErr := io.ReadAll(reader)
	if err != nil || readErr != nil || !strings.HasPrefix(string(out), "status\t") {
		t.Errorf("%v, %v: %q", err, readErr, out)
	}
}
