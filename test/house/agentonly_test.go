package house

import (
	"os/exec"
	"strings"
	"testing"
)

// TestAgentOnly: what the image's binary is built of compiles, and holds neither
// an API server nor the laboratory.
func TestAgentOnly(t *testing.T) {
	if out, err := exec.Command("go", "build", "-tags", "agentonly", "./cmd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command("go", "list", "-deps", "-tags", "agentonly", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const ours = "github.com/fairway-net/fairway/"
	for dependency := range strings.Lines(string(out)) {
		for _, prefix := range []string{
			ours + "apiserver", ours + "lab", ours + "test",
			"k8s.io/kubectl", "k8s.io/apiextensions-apiserver", "k8s.io/apiserver/pkg/server/options",
			"go.etcd.io/etcd/server", "go.etcd.io/etcd/client",
		} {
			if strings.HasPrefix(dependency, prefix) {
				t.Errorf("the image would hold %s", strings.TrimSpace(dependency))
			}
		}
	}
}

// TestProductImportsNoTests: nothing that is installed holds anything of test/.
func TestProductImportsNoTests(t *testing.T) {
	for _, tags := range []string{"", "agentonly"} {
		out, err := exec.Command("go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for dependency := range strings.Lines(string(out)) {
			if strings.HasPrefix(dependency, "github.com/fairway-net/fairway/test/") {
				t.Errorf("with the tags %q, the binary holds %s", tags, strings.TrimSpace(dependency))
			}
		}
	}
}
