package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/lab/controlplane"
	"github.com/fairway-net/fairway/test/fakeapi"
)

func (h *host) do(format string, args ...any) {
	h.t.Helper()
	if _, err := h.api.Do(fmt.Sprintf(format, args...)); err != nil {
		h.t.Fatal(err)
	}
}

// serve has the API serve what was recorded of a version.
func (h *host) serve(version string) {
	h.t.Helper()
	objects, err := fakeapi.Recorded(version)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, o := range objects {
		if err := h.api.Apply(o); err != nil {
			h.t.Fatal(err)
		}
	}
}

// configure brings kube-proxy's ConfigMap, as kubeadm writes it, to the node as
// the kubelet does: all files at once, by one link. Or it is one that leaves the
// API server to the environment of the pod, which is returned.
func (h *host) configure(mode string, inCluster bool) (environ []string) {
	h.t.Helper()
	kubeconfig := "/var/lib/kube-proxy/kubeconfig.conf"
	if inCluster {
		kubeconfig = ""
	}
	dir := filepath.Join(h.dir, "config")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	version, err := os.MkdirTemp(dir, "..version-")
	if err != nil {
		h.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"config.conf":     controlplane.KubeadmConfiguration(kubeconfig, "10.244.0.0/16", mode),
		"kubeconfig.conf": fmt.Sprintf(kubeadmKubeconfig, h.url),
	} {
		if err := os.WriteFile(filepath.Join(version, name), []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			h.t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		h.t.Fatal(err)
	}
	address := netip.MustParseAddrPort(strings.TrimPrefix(h.url, "https://"))
	return []string{"KUBERNETES_SERVICE_HOST=" + address.Addr().String(), fmt.Sprint("KUBERNETES_SERVICE_PORT=", address.Port())}
}

// playTroubles changes endpoints while the API is as bad as it may be.
func (h *host) playTroubles(agent *process, address string) {
	h.t.Helper()
	for i, trouble := range []string{"cut", "half", "end", "gone", "refuse 6 1", "bookmark"} {
		h.do("%s", trouble)
		ready, want := i%2 == 1, "web"
		if !ready {
			want = ""
		}
		h.slice(ready)
		h.answers(agent, address, want)
	}
	h.slice(true)
	h.answers(agent, address, "web")
	h.tellsAuthor(agent)
}

// tellsAuthor has the agent tell a Service's author, by an Event, what is not
// done as asked.
func (h *host) tellsAuthor(agent *process) {
	h.t.Helper()
	for _, o := range h.api.Objects("services") {
		if o.GetNamespace() != "shop" || o.GetName() != "web" {
			continue
		}
		o = o.DeepCopy()
		o.SetAnnotations(map[string]string{"fairway.dev/scheduler": "nonsense"})
		text, err := o.MarshalJSON()
		if err != nil {
			h.t.Fatal(err)
		}
		if err := h.api.Apply(text); err != nil {
			h.t.Fatal(err)
		}
	}
	for late := range wait.Tries(60 * time.Second) {
		for _, e := range h.api.Objects("events") {
			if e.GetNamespace() == "shop" && strings.Contains(toText(e.Object), "nonsense") {
				return
			}
		}
		if late {
			h.t.Fatalf("no Event on the Service\n%s", agent.log)
		}
	}
}

func toText(o map[string]any) string {
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// slice makes the endpoint ready or not.
func (h *host) slice(ready bool) {
	h.t.Helper()
	for _, o := range h.api.Objects("endpointslices") {
		if o.GetNamespace() != "shop" || o.GetLabels()["kubernetes.io/service-name"] != "web" {
			continue
		}
		o = o.DeepCopy()
		endpoints, _ := o.Object["endpoints"].([]any)
		for _, e := range endpoints {
			if m, ok := e.(map[string]any); ok && fmt.Sprint(m["addresses"]) == "["+podAddr+"]" {
				m["conditions"] = map[string]any{"ready": ready, "serving": ready, "terminating": false}
				o.Object["endpoints"] = []any{m}
			}
		}
		text, err := o.MarshalJSON()
		if err != nil {
			h.t.Fatal(err)
		}
		if err := h.api.Apply(text); err != nil {
			h.t.Fatal(err)
		}
	}
}

// serviceCIDRs is what agents try and can go on without: roles before 1.33 don't
// allow it.
var serviceCIDRs = fakeapi.Access{Verb: "list", Group: "networking.k8s.io", Resource: "servicecidrs"}

// role: what the agent did is what kube-proxy may do, and it has told the author
// of a Service what isn't done as asked.
func (h *host) role() {
	h.t.Helper()
	seen := h.api.Seen()
	for _, a := range seen.Access {
		for minor := 28; minor <= 37; minor++ {
			if a != serviceCIDRs && !fakeapi.Allowed(fakeapi.NodeProxierOf(minor), a) {
				h.t.Errorf("used: %s %s in %q, which system:node-proxier of Kubernetes 1.%d doesn't allow", a.Verb, a.Resource, a.Group, minor)
			}
		}
	}
	h.t.Logf("used of the API: %v", seen.Access)
	if slices.ContainsFunc(seen.Forbidden, func(a fakeapi.Access) bool { return a != serviceCIDRs }) {
		h.t.Errorf("forbidden: %v", seen.Forbidden)
	}
}
