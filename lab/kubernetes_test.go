//go:build kubernetes

package lab_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/controlplane"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// kubernetesEnv is a directory of Kubernetes' own programs (see
// hack/kubernetes/build).
const kubernetesEnv = "FAIRWAY_KUBERNETES"

func kubernetesBinaries(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(kubernetesEnv)
	if dir == "" {
		t.Fatalf("%s names no directory with Kubernetes' own programs: `make check NAME=kubernetes` has them built", kubernetesEnv)
	}
	return dir
}

// TestKubernetes: agents with no more than kube-proxy's permissions and
// configuration serve a cluster whose control plane is Kubernetes' own.
func TestKubernetes(t *testing.T) {
	c := newCluster(t, kubernetesBinaries(t))
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			p := c.start(t, fairwayProxy(mode))
			c.works(t)
			load := c.load(t, false)
			c.replacePods(t)
			load.check(t, "rolling update", "")
			c.works(t)
			c.stop(t, p)
			c.cleanUp(t)
		})
	}
	c.checkAudit(t)
}

// checkAudit reads kube-apiserver's audit log: what the proxies' user asked for
// was allowed by the role of Kubernetes 1.28, and by the server at hand. Ranges of
// cluster IPs are asked for too: newer roles allow it, and agents do without.
func (c *cluster) checkAudit(t *testing.T) {
	t.Helper()
	f, err := os.Open(lab.KubernetesAuditLog(c.lab))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	used := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct {
			Verb, UserAgent string
			User            struct{ Username string }
			ObjectRef       struct{ APIGroup, Resource, Subresource string }
			ResponseStatus  struct{ Code int }
			RequestURI      string
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.User.Username != controlplane.ProxyUser || strings.HasPrefix(e.UserAgent, "kube-proxy/") {
			continue
		}
		a := fakeapi.Access{Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}
		if e.ObjectRef.Subresource != "" {
			a.Resource += "/" + e.ObjectRef.Subresource
		}
		used[fmt.Sprintf("%s %s.%s", a.Verb, a.Resource, a.Group)]++
		if a.Group == "networking.k8s.io" && a.Resource == "servicecidrs" {
			continue
		}
		if e.ResponseStatus.Code == 403 || !fakeapi.Allowed(fakeapi.NodeProxier(), a) {
			t.Errorf("asked for more than kube-proxy may: %s %s, answered %d", e.Verb, e.RequestURI, e.ResponseStatus.Code)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("used: %v", used)
	for _, want := range []string{"watch services.", "watch endpointslices.discovery.k8s.io", "watch nodes."} {
		if used[want] == 0 {
			t.Errorf("nobody used %q, so that the log says nothing: %v", want, used)
		}
	}
}
