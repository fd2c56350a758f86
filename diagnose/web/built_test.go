package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sources is where the page is built from, beside this package.
const sources = "../../web"

// TestBuilt: dist is what `make check NAME=web` made of the sources there are. It compares
// what the build wrote down, so that it takes no npm; `make check NAME=generated` builds
// again where there is one.
func TestBuilt(t *testing.T) {
	written, err := os.ReadFile("dist/sums.txt")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	add := func(name, file string) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")))
		sums[name] = hex.EncodeToString(sum[:])
	}
	for _, dir := range []struct{ name, path string }{{"src", sources + "/src"}, {"dist", "dist"}} {
		if err := filepath.WalkDir(dir.path, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != "sums.txt" {
				add(dir.name+"/"+filepath.ToSlash(strings.TrimPrefix(path, dir.path+"/")), path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"build.mjs", "package-lock.json"} {
		add(name, sources+"/"+name)
	}
	var lines []string
	for name, sum := range sums {
		lines = append(lines, fmt.Sprintf("%s  %s\n", sum, name))
	}
	slices.Sort(lines)
	if have := strings.Join(lines, ""); have != string(written) {
		t.Errorf("the page isn't built from these sources: run `make check NAME=web`.\nThere is:\n%sdist/sums.txt has:\n%s", have, written)
	}
}
