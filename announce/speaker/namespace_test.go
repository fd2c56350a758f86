package speaker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/test/wait"
)

// TestNamespace: MetalLB's objects and the key of adverts are looked for in the namespace that the
// agent is given, and nowhere else.
func TestNamespace(t *testing.T) {
	var lock sync.Mutex
	asked := map[string]string{} // the namespace, by resource
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		if i := slices.Index(parts, "namespaces"); i > 0 && i+2 < len(parts) {
			lock.Lock()
			asked[parts[i+2]] = parts[i+1]
			lock.Unlock()
		}
		http.NotFound(w, r)
	}))
	defer api.Close()
	client := fake.NewClientset()
	n, err := New(Config{NodeName: "n1", Options: Options{Namespace: "balancers"}, Client: client, API: &rest.Config{Host: api.URL}, Events: &noted{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	n.watch(ctx, group)
	kinds := []string{"bfdprofiles", "bgpadvertisements", "bgppeers", "communities", "ipaddresspools", "l2advertisements"}
	wait.Until(t, 20*time.Second, "all kinds are asked for", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(asked) >= len(kinds)
	})
	stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	for _, kind := range kinds {
		if asked[kind] != "balancers" {
			t.Errorf("%s are looked for in %q", kind, asked[kind])
		}
	}
	var k keys
	_, _ = n.readKeys(t.Context(), &k)
	if actions := client.Actions(); len(actions) == 0 || actions[len(actions)-1].GetNamespace() != "balancers" {
		t.Errorf("the key is looked for by %v", actions)
	}
}
