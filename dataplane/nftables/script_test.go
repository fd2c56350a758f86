package nftables

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
)

var updateGolden = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", file, diff)
	}
}

func TestRender(t *testing.T) {
	objects, err := Render(everything(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, o := range objects {
		b.WriteString(strings.ReplaceAll(o.String(), "\n", "\n    ") + "\n")
	}
	golden(t, "everything.objects", b.String())
}

func TestScript(t *testing.T) {
	script, err := Script(everything(), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "everything.nft", script[scriptFile])
}

// TestScriptIsWhatApplyDoes loads the script with nft and applies the same
// table over netlink, and has nft list both: the two forms of every rule say
// the same.
func TestScriptIsWhatApplyDoes(t *testing.T) {
	inNamespace(t)
	table := everything()
	p := newPlane(t, kernel.Options{})
	apply(t, p, table, false)
	applied := nft(t, "--stateless", "list", "table", "inet", "fairway")

	script, err := Script(table, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), scriptFile)
	if err := os.WriteFile(file, []byte(script[scriptFile]), 0o644); err != nil {
		t.Fatal(err)
	}
	nft(t, "-c", "-f", file)
	nft(t, "-f", file)
	loaded := nft(t, "--stateless", "list", "table", "inet", "fairway")
	if diff := cmp.Diff(listing(loaded), listing(applied)); diff != "" {
		t.Errorf("the script (-) and what is applied (+) differ:\n%s", diff)
	}
}

// listing takes out of nft's output what may differ: the order of elements, and
// how the type of slots is spelt, which nft can't be told over netlink.
func listing(s string) string {
	s = regexp.MustCompile(`(?m)^\s*(typeof meta priority \. numgen|type classid \. mark :).*$`).ReplaceAllString(s, "\t\t(slots)")
	s = regexp.MustCompile(`\. 0x0000000([0-9]) `).ReplaceAllString(s, ". $1 ")
	return regexp.MustCompile(`(?s)elements = \{(.*?)\}`).ReplaceAllStringFunc(s, func(list string) string {
		list = strings.TrimSuffix(strings.TrimPrefix(list, "elements = {"), "}")
		var items []string
		for item := range strings.SplitSeq(list, ",") {
			items = append(items, strings.Join(strings.Fields(item), " "))
		}
		slices.Sort(items)
		return "elements:\n" + strings.Join(items, "\n")
	})
}
