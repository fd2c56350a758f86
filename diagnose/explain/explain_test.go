package explain

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/manifest"
)

var update = flag.Bool("update", false, "write the golden answers")

// TestAnswers asks the questions of testdata, each a line "TARGET [from SOURCE]
// [on NODE] [rules]" of the file "questions", and compares the answers.
func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects := readObjects(t, part(archive, "manifests.yaml"))
			got := answers(objects, strings.TrimSpace(string(part(archive, "questions"))))
			if *update {
				for i := range archive.Files {
					if archive.Files[i].Name == "answers" {
						archive.Files[i].Data = got
					}
				}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := part(archive, "answers"); !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func part(a *txtar.Archive, name string) []byte {
	for _, f := range a.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func readObjects(t *testing.T, manifests []byte) *Objects {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, manifests, 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return &Objects{Services: set.Services, Slices: set.Slices, Pods: set.Pods, Nodes: set.Nodes}
}

func answers(o *Objects, questions string) []byte {
	var out bytes.Buffer
	config := compile.Config{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}}
	for line := range strings.Lines(questions) {
		words := strings.Fields(line)
		var from, node string
		rules := false
		for i := 1; i < len(words); i++ {
			switch words[i] {
			case "from":
				from = words[i+1]
			case "on":
				node = words[i+1]
			case "rules":
				rules = true
			}
		}
		out.WriteString("? " + strings.TrimSpace(line) + "\n")
		q, err := ParseQuestion(words[0], from, "default")
		q.Node = node
		var r *Report
		if err == nil {
			r, err = FromObjects(q, o, config, nil)
		}
		switch {
		case err != nil:
			out.WriteString("error: " + err.Error() + "\n")
		case rules:
			err = r.WriteRules(&out)
		default:
			err = r.WriteText(&out, false)
		}
		if err == nil {
			out.WriteString("exit " + string(rune('0'+r.ExitCode())) + "\n\n")
		}
	}
	return out.Bytes()
}
