package diagnosis

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/cmd/exit"
)

// TestDoctorAll finds the one broken Service among thousands, with its code.
func TestDoctorAll(t *testing.T) {
	var manifests strings.Builder
	const services = 2000
	for i := range services {
		ready := i != 77
		fmt.Fprintf(&manifests, `---
apiVersion: v1
kind: Service
metadata: {namespace: default, name: s%d}
spec: {clusterIP: 10.96.%d.%d, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: default, name: s%d-1, labels: {kubernetes.io/service-name: s%d}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.%d.%d], conditions: {ready: %t, serving: %t}}]
`, i, 1+i/250, 1+i%250, i, i, i/250, 1+i%250, ready, ready)
	}
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(manifests.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		c := Doctor()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetArgs(append(args, "-f", file))
		c.SilenceUsage, c.SilenceErrors = true, true
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	text, err := run("-A")
	var exit exit.Error
	if !errors.As(err, &exit) || exit.Code != 1 {
		t.Errorf("error %v, want exit code 1", err)
	}
	for _, part := range []string{"default/s77  FW102  proved  none of 1 endpoints is ready", "2000 Services looked at by what the API says, 1 problem.  Next: fairway doctor svc/s77 -n default"} {
		if !strings.Contains(text, part) {
			t.Errorf("the report lacks %q:\n%s", part, text)
		}
	}
	if without, _ := run(); without != text {
		t.Errorf("files without a Service are these Services, not this machine:\n%s", without)
	}
	if _, err := run("--node", "a"); err == nil || !strings.Contains(err.Error(), "manifests say nothing of nodes") {
		t.Errorf("a node of manifests: %v", err)
	}
	if text, err := run("-A", "-n", "other"); err != nil || !strings.Contains(text, "0 Services") {
		t.Errorf("another namespace: %v\n%s", err, text)
	}
	if _, err := run("-A", "svc/s1"); !errors.As(err, &exit) || exit.Code != 2 {
		t.Errorf("a Service beside --all: %v", err)
	}
}
