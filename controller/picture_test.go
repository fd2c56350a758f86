package controller

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "draw the picture in docs/explanation/design.md anew")

const (
	design       = "../docs/explanation/design.md"
	pictureBegin = "<!-- drawn from controller/list.go -->\n"
	pictureEnd   = "<!-- end -->\n"
)

// picture shows who reads and writes which kinds. Events are left out: everybody
// may write them.
func picture() string {
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart LR\n")
	for _, c := range controllers() {
		name := strings.TrimSuffix(c.name, "-controller")
		for _, kind := range strings.Fields(c.reads) {
			fmt.Fprintf(&b, "  r_%s([%s]) --> %s\n", kind, kind, name)
		}
		for _, kind := range strings.Fields(c.writes) {
			if kind != "events" {
				fmt.Fprintf(&b, "  %s --> w_%s([%s])\n", name, kind, kind)
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// TestPicture: docs/explanation/design.md shows the controllers that there are.
func TestPicture(t *testing.T) {
	data, err := os.ReadFile(design)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), pictureBegin)
	drawn, after, ended := strings.Cut(rest, pictureEnd)
	if !found || !ended {
		t.Fatalf("%s: the marks of the picture are gone", design)
	}
	if drawn == picture() {
		return
	}
	if !*update {
		t.Fatalf("%s: the picture of the controllers is old; run go test ./controller -run TestPicture -update", design)
	}
	if err := os.WriteFile(design, []byte(before+pictureBegin+picture()+pictureEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// written finds the kinds that a package writes in one breath:
// client.CoreV1().Pods(namespace).Delete(…).
var written = regexp.MustCompile(`\.([A-Z]\w+)\([^()]*\)\.(?:Create|Update|UpdateStatus|Patch|Delete)\(ctx`)

// TestListSaysWhatIsWritten holds the list to the code, as far as the code writes
// without a detour; and no controller writes nothing.
func TestListSaysWhatIsWritten(t *testing.T) {
	folders := map[string]string{
		"endpointslice-controller": "endpointslice", "endpoints-controller": "endpoints", "endpointslice-mirroring-controller": "mirroring",
		"no-endpoints-controller": "noendpoints", "endpoint-health-controller": "health", "namespace-controller": "namespace",
		"garbage-collector-controller": "garbage", "certificatesigningrequest-controller": "nodecert", "expired-objects-controller": "expired",
		"node-lifecycle-controller": "nodelife", "pod-garbage-collector-controller": "podgc", "disruption-controller": "disruption",
		"clusterrole-aggregation-controller": "clusterroles", "service-cidr-controller": "servicecidr", "serviceaccount-controller": "serviceaccount",
		"serviceaccount-token-controller": "accounttoken", "resourcequota-controller": "quota", "load-balancer-addresses-controller": "addresses", "gateway-controller": "gateway",
	}
	seen := 0
	for _, c := range controllers() {
		writes := strings.Fields(c.writes)
		if len(writes) == 0 || c.reads == "" {
			t.Errorf("%s: the list doesn't say what it reads and writes", c.name)
		}
		folder, known := folders[c.name]
		if !known {
			t.Errorf("%s: this test doesn't know its folder", c.name)
			continue
		}
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files in %s: %v", c.name, folder, err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range written.FindAllStringSubmatch(string(data), -1) {
				seen++
				if kind := strings.ToLower(m[1]); !strings.HasSuffix(path, "_test.go") && !slices.Contains(writes, kind) && !slices.Contains(writes, "everything") {
					t.Errorf("%s writes %s (%s), which the list doesn't say", c.name, kind, path)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d writes found: the code has another form now", seen)
	}
}
