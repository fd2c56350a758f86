//go:build !agentonly

package cmd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// readmeBlock are the lines of the first block of commands under a heading of
// README.md.
func readmeBlock(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatalf("README.md has no commands under %q", heading)
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

// runReadme runs lines in one shell on a machine of its own, standing in the
// repository, and returns what they print.
func runReadme(t *testing.T, before string, lines []string) string {
	t.Helper()
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	laptop := newNetwork(t).hosts["laptop"]
	began := time.Now()
	out := laptop.run("install fairway /usr/local/bin/\n" + before + "\ncd " + repository + "\nset -e\n" + strings.Join(lines, "\n"))
	t.Logf("%d commands took %v:\n%s", len(lines), time.Since(began).Round(100*time.Millisecond), out)
	return out
}

// TestREADMELab is somebody who learns Services: the lab of README.md, and in it
// what is to be done when a Service doesn't answer.
func TestREADMELab(t *testing.T) {
	lab := readmeBlock(t, "Try it in a lab")
	last := lab[len(lab)-1]
	if last != "fairway lab down" {
		t.Fatalf("the lab ends with %q", last)
	}
	var lines []string
	for _, line := range append(lab[:len(lab)-1:len(lab)-1], readmeBlock(t, "When a Service doesn't answer")...) {
		line, _, _ = strings.Cut(line, "  #")
		line = strings.TrimSpace(line)
		switch {
		case line == "fairway web": // it serves until somebody ends it
			line = "timeout -s INT 3 " + line + " || true"
		case strings.HasPrefix(line, "fairway doctor"): // it fails where it finds something, and a pod is broken
			line += " || true"
		}
		lines = append(lines, line)
	}
	out := runReadme(t, "trap 'fairway lab down || true' EXIT", append(lines, "trap - EXIT", last))
	for _, want := range []string{
		"is up: 3 nodes, mode nftables", `deployment "hello" successfully rolled out`, "\nhello-",
		"FORWARDED to one of 5 endpoints", "not ready since", "10 of 10 objects as they should be",
		"http://127.0.0.1:", "default/web", "as an example, cluster IP 10.96.0.1", "pool default/hello-service:hello-port/tcp\n  backend 10.244.0.1:8080",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("nothing prints %q", want)
		}
	}
}

// TestREADMEMachines: README.md has somebody with three machines do what
// docs/machines.md does, which TestFirstFiveMinutes runs.
func TestREADMEMachines(t *testing.T) {
	run := map[string]bool{}
	for _, line := range fiveMinutes(t) {
		run[line[0]] = true
	}
	for _, line := range readmeBlock(t, "Three machines and one address") {
		line, _, _ = strings.Cut(line, "  #")
		if !run[strings.TrimSpace(line)] {
			t.Errorf("docs/machines.md doesn't have %q", line)
		}
	}
}

// TestREADMEInstall installs, upgrades and uninstalls as README.md says. The
// machine's own files stay as they are.
func TestREADMEInstall(t *testing.T) {
	var lines []string
	for _, line := range readmeBlock(t, "Install, upgrade, uninstall") {
		line, _, _ = strings.Cut(line, "  #")
		lines = append(lines, line, "echo NOW; ls /etc/systemd/system /etc/default")
	}
	out := runReadme(t, `mkdir -p /run/copy; cp -a /usr/local/bin /run/copy/; for d in /usr/local /etc/default /usr/share/bash-completion /etc/bash_completion.d; do
	[ ! -d $d ] || mount -t tmpfs none $d; done; mkdir -p /usr/local/bin; cp -a /run/copy/bin/. /usr/local/bin/
cp --remove-destination `+os.Args[0]+` /usr/local/bin/fairway; export `+asFairway+`=1`, lines)
	listed := strings.Split(out, "NOW\n")
	if len(listed) != 4 {
		t.Fatalf("%d lists, want 3", len(listed)-1)
	}
	for i, list := range listed[1:3] {
		if !strings.Contains(list, "fairway-up.service") || !strings.Contains(list, "fairway-up\n") {
			t.Errorf("after command %d there is no unit or no options:\n%s", i+1, list)
		}
	}
	if strings.Contains(listed[3], "fairway-up.service") || !strings.Contains(listed[3], "fairway-up\n") {
		t.Errorf("uninstall leaves the unit, or doesn't leave the options:\n%s", listed[3])
	}
}

// TestREADMETargets: the Makefile has the targets that README.md names.
func TestREADMETargets(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)").FindAllStringSubmatch(string(readme), -1)
	if len(targets) < 4 {
		t.Fatalf("found %v only", targets)
	}
	for _, target := range targets {
		if !strings.Contains(string(makefile), "\n"+target[1]+":") {
			t.Errorf("the Makefile has no target %s", target[1])
		}
	}
}
