//go:build differential

package differential

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

var (
	seed  = flag.Uint64("seed", 0, "of the objects; another one for each run if 0")
	count = flag.Int("objects", 10000, "how many objects are sent")
)

// kind is one that both serve.
type kind struct {
	name   string // GROUP/VERSION KIND
	url    string
	object map[string]any
	order  int // in the file: some need others
}

func readObjects(t *testing.T) []map[string]any {
	t.Helper()
	f, err := os.Open("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []map[string]any
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		object := map[string]any{}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object) > 0 {
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := runtime.Decode(unstructured.UnstructuredJSONScheme, text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, parsed.(*unstructured.Unstructured).Object)
		}
	}
}

// ownGroups are of custom resources, which the library checks by schemas.
var ownGroups = []string{"gateway.networking.k8s.io", "metallb.io", "fairway.dev", "apiextensions.k8s.io"}

// reviews are asked, and not kept.
func isReview(name string) bool { return strings.HasSuffix(name, "Review") }

// kinds are those that ours serves, with an object of each. A kind without one fails the
// test.
func kinds(t *testing.T, ours *rest.Config, objects []map[string]any) []kind {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(ours)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []kind
	for _, list := range lists {
		group, _, _ := strings.Cut(list.GroupVersion, "/")
		if slices.Contains(ownGroups, group) {
			continue
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "create") || strings.Contains(r.Name, "/") || isReview(r.Kind) {
				continue
			}
			before := len(out)
			for order, object := range objects {
				if object["apiVersion"] != list.GroupVersion || object["kind"] != r.Kind {
					continue
				}
				url := "/api/" + list.GroupVersion
				if group != list.GroupVersion {
					url = "/apis/" + list.GroupVersion
				}
				if r.Namespaced {
					url += "/namespaces/default"
				}
				out = append(out, kind{list.GroupVersion + " " + r.Kind, url + "/" + r.Name, object, order})
			}
			if len(out) == before {
				t.Errorf("testdata/objects.yaml has no %s %s", list.GroupVersion, r.Kind)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b kind) int { return cmp.Compare(a.order, b.order) })
	return out
}

// server is one of the two.
type server struct {
	*testing.T
	client *http.Client
	host   string
	// versions are those of the objects that updates are of, by their order.
	versions map[int]string
}

// request is a way to write.
type request struct{ name, method, contentType, query string }

// requests are the ways of which one is chosen, the likelier ones more than once.
var requests = []request{
	{"create", http.MethodPost, "application/json", ""},
	{"create", http.MethodPost, "application/json", ""},
	{"create", http.MethodPost, "application/json", ""},
	{"update", http.MethodPut, "application/json", ""},
	{"update", http.MethodPut, "application/json", ""},
	{"update", http.MethodPut, "application/json", ""},
	{"merge patch", http.MethodPatch, "application/merge-patch+json", ""},
	{"strategic merge patch", http.MethodPatch, "application/strategic-merge-patch+json", ""},
	{"apply", http.MethodPatch, "application/apply-patch+yaml", "&fieldManager=test&force=true"},
	{"delete", http.MethodDelete, "application/json", ""},
}

// deleteOptions are valid; mutate changes them as it changes objects.
func deleteOptions() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": int64(3), "propagationPolicy": "Background",
		"preconditions": map[string]any{},
	}
}

// at is an object as an update at this server.
func (s *server) at(method string, k kind, object map[string]any) map[string]any {
	if method == http.MethodPut {
		object = runtime.DeepCopyJSON(object)
		(&unstructured.Unstructured{Object: object}).SetResourceVersion(s.versions[k.order])
	}
	return object
}

func newServer(t *testing.T, config *rest.Config) *server {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{t, client, config.Host, map[int]string{}}
}

func (s *server) send(method, contentType, url string, object map[string]any) answer {
	s.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		s.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(s.Context()), method, s.host+url, bytes.NewReader(text))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		s.Fatal(err)
	}
	return parse(s.T, resp.StatusCode, body)
}

// elsewhere are addresses and ports that the objects of updates hold, and free ones.
var elsewhere = strings.NewReplacer("10.96.0.50", "10.96.0.150", "10.96.0.51", "10.96.0.151", "10.96.0.200", "10.96.0.201", "10.97.0.0", "10.98.0.0",
	"30080", "30180", "30053", "30153", "30099", "30199")

// another is an object beside the one that updates are of.
func another(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := runtime.Decode(unstructured.UnstructuredJSONScheme, []byte(elsewhere.Replace(string(text))))
	if err != nil {
		t.Fatal(err)
	}
	u := parsed.(*unstructured.Unstructured)
	if u.GetName() == name(object) {
		u.SetName(name(object) + "-new")
	}
	return u.Object
}

// found is a difference with the first object that shows it.
type found struct {
	times int
	first string
}

// TestDifferential sends the same objects to both.
func TestDifferential(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d -objects %d", *seed, *count)
	theirs, config := newServer(t, startKubernetes(t)), startFairway(t)
	ours := newServer(t, config)
	all, list := kinds(t, config, readObjects(t)), readWanted(t)
	for i := range all {
		k := &all[i]
		for _, s := range []*server{theirs, ours} { // the object that updates are of
			a := s.send(http.MethodPost, "application/json", k.url, k.object)
			if a.code == http.StatusConflict { // every cluster has one
				a = s.send(http.MethodGet, "application/json", k.url+"/"+name(k.object), nil)
			}
			if a.code >= http.StatusBadRequest {
				t.Errorf("%s: %s %s isn't taken: %s", s.host, k.name, name(k.object), a.text)
				continue
			}
			s.versions[k.order] = (&unstructured.Unstructured{Object: a.object}).GetResourceVersion()
		}
	}
	r := rand.New(rand.NewPCG(*seed, 0)) //nolint:gosec // a test's objects, which must be the same by the same seed
	differences, agreed, refused := map[string]*found{}, 0, 0
	for n := range *count {
		k := all[n%len(all)]
		object := runtime.DeepCopyJSON(k.object)
		how, url := requests[r.IntN(len(requests))], k.url+"/"+name(object)
		switch how.method {
		case http.MethodPost:
			url, object = k.url, another(t, k.object)
		case http.MethodDelete:
			object = deleteOptions()
		}
		did := mutate(r, object)
		if how.method == http.MethodDelete {
			object["dryRun"] = []any{"All"} // where there are options, the query isn't looked at
		}
		url += "?dryRun=All" + how.query
		a := theirs.send(how.method, how.contentType, url, theirs.at(how.method, k, object))
		b := ours.send(how.method, how.contentType, url, ours.at(how.method, k, object))
		lines := differ(a, b)
		if len(lines) == 0 {
			agreed++
			if a.code >= http.StatusBadRequest {
				refused++
			}
		}
		for _, line := range lines {
			if isWanted(list, k.name, line) {
				continue
			}
			key := k.name + " | " + line
			if differences[key] == nil {
				differences[key] = &found{first: fmt.Sprintf("%s of %s (%d %d)\n\ttheirs: %.300s\n\tours:   %.300s", how.name, did, a.code, b.code, a.text, b.text)}
			}
			differences[key].times++
		}
	}
	t.Logf("%d objects agreed on, %d of them refused", agreed, refused)
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for key := range differences {
			if !yield(key) {
				return
			}
		}
	}) {
		t.Errorf("%s: %d times, first by %s", key, differences[key].times, differences[key].first)
	}
}

func name(object map[string]any) string {
	return (&unstructured.Unstructured{Object: object}).GetName()
}
