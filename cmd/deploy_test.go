package cmd

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// parse has a command line's flags read, and its arguments judged, without
// running it.
func parse(args []string) error {
	root := &cobra.Command{Use: "fairway", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(commands()...)
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if c == root || c.DisableFlagParsing {
		return fmt.Errorf("no command of ours")
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// TestDeployedCommandLines: what the manifests and the units run are flags of
// this binary.
func TestDeployedCommandLines(t *testing.T) {
	for _, file := range []string{"base/daemonset.yaml", "cleanup/daemonset.yaml", "gateway/engine.yaml", "gateway/controller.yaml", "addresses/deployment.yaml"} {
		text, err := os.ReadFile("../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var daemons appsv1.DaemonSet // a Deployment has its pods at the same place
		if err := yaml.Unmarshal(text, &daemons); err != nil {
			t.Fatal(err)
		}
		pod := daemons.Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if c.Command != nil { // the image has no program but ours: no shell, no sleep
				t.Errorf("container %s runs %v", c.Name, c.Command)
				continue
			}
			if err := parse(c.Args); err != nil {
				t.Errorf("container %s: %v: %v", c.Name, c.Args, err)
			}
		}
	}
	units, err := filepath.Glob("../deploy/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("units: %v, %v", units, err)
	}
	example := regexp.MustCompile(`(?m)^# OPTIONS, for example: (.*)$`)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/fairway (.*)\$OPTIONS$`)
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		options, line := example.FindSubmatch(text), start.FindSubmatch(text)
		if options == nil || line == nil {
			t.Errorf("%s: no ExecStart with $OPTIONS, or no example for them", unit)
			continue
		}
		if err := parse(strings.Fields(string(line[1]) + string(options[1]))); err != nil {
			t.Errorf("%s: %v", unit, err)
		}
	}
}

// TestDocumentedCommandLines: command lines of the documents, which nobody runs
// in a test, are this binary's too.
func TestDocumentedCommandLines(t *testing.T) {
	for _, document := range []string{"../docs/how-to/replacing-kube-proxy.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			line, _, _ := strings.Cut(lines.Text(), " #")
			args, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "sudo "), "fairway ")
			if !ok {
				continue
			}
			found++
			if err := parse(strings.Fields(args)); err != nil {
				t.Errorf("%s: %q: %v", document, line, err)
			}
		}
		if found == 0 {
			t.Errorf("%s: no command lines", document)
		}
	}
}
