//go:build !agentonly

package cmd

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion asks as shells do. The API knows one Service, one Node and one Pod.
func TestCompletion(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		lists := map[string]string{
			"/api/v1/namespaces/default/services": `{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"name":"web"}}]}`,
			"/api/v1/namespaces/shop/services":    `{"kind":"ServiceList","apiVersion":"v1","items":[{"metadata":{"name":"cart"}}]}`,
			"/api/v1/namespaces/default/pods":     `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"client-a"}}]}`,
			"/api/v1/nodes":                       `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"node1"}}]}`,
			"/api/v1/namespaces":                  `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"shop"}}]}`,
		}
		if lists[r.URL.Path] == "" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(lists[r.URL.Path])) // a client that goes is no failure
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
"clusters":[{"name":"a","cluster":{"server":"` + api.URL + `"}}],"users":[{"name":"a","user":{}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for line, want := range map[string]string{
		"agent --mode ip":                         "iptables ipvs",
		"agent --mode=auto":                       "auto",
		"explain -o j":                            "json",
		"explain sv":                              "svc/web",
		"explain -n shop svc/":                    "svc/cart",
		"explain svc/web --from n":                "node/node1",
		"explain svc/web --from pod/":             "pod/client-a",
		"doctor --namespace s":                    "shop",
		"drain n":                                 "node1",
		"certs revoke --kubeconfig=" + file + " ": "node1",
		"publish w":                               "web",
		"agent --scheduler wl":                    "wlc",
		"lab up --router f":                       "frr",
		"lab exec c":                              "client",
		"lab kubectl --name none get --show":      "--show-kind --show-labels --show-managed-fields",
		"kubectl rollout st":                      "status",
		"kubectl --kubeconfig=" + file + " config use-context ": "a",
	} {
		words := append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)
		var got []string
		for found := range strings.Lines(run(t, words...)) {
			name, _, _ := strings.Cut(strings.TrimSpace(found), "\t")
			if name != "" && !strings.HasPrefix(name, ":") {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", line, got, want)
		}
	}
}
