//go:build !agentonly

package cmd

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// TestStart: what any command does before it begins: kubectl's translations aren't read, which
// took a third of the memory that all packages take to be initialised.
func TestStart(t *testing.T) {
	allocated := func(args ...string) (bytes int) {
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), asFairway+"=1", "GODEBUG=inittrace=1", "LANG=")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, m := range regexp.MustCompile(`(?m)^init k8s\.io/kubectl/\S+ .* (\d+) bytes,`).FindAllSubmatch(out, -1) {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
		return bytes
	}
	others, kubectl := allocated("version"), allocated("kubectl", "options")
	if others == 0 || others > kubectl/2 {
		t.Errorf("kubectl's packages take %d bytes as another command starts, and %d as it does", others, kubectl)
	}
}
