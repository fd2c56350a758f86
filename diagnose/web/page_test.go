//go:build page

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// pageEnv is the folder for the pictures of the page.
const pageEnv = "FAIRWAY_PAGE"

// TestPage: what a browser makes of the page. The steps are in web/test; here are
// two pages for them, of a small cluster and of 10,000 Services, and the strings
// that they pull.
func TestPage(t *testing.T) {
	pictures := os.Getenv(pageEnv)
	if pictures == "" {
		t.Fatal("FAIRWAY_PAGE names no folder for pictures: `make check NAME=page`")
	}
	manifests, err := os.ReadFile("testdata/page.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fake := &connections{}
	small := start(t, string(manifests), func(_ *fakeapi.Server, c *Config) {
		c.Flags = "--kubeconfig '/tmp/my config'"
		c.Agents = someAgents
		c.Flows = fake.follow
		c.Examine = func(_ context.Context, namespace, name, _ string) (*doctor.Report, error) {
			return nil, fmt.Errorf("%s/%s: this page has no endpoints to connect to", namespace, name)
		}
	})
	large := full(t)
	server := httptest.NewServer(large.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	control := httptest.NewServer(controls(small, fake, map[string]func() string{
		"small": func() string { return small.url + "/?token=" + small.page.Token() },
		"large": func() string { return server.URL + "/?token=" + large.Token() },
	}))
	t.Cleanup(control.Close)
	runSteps(t, "main.mjs", "PAGE_CONTROL="+control.URL, "PAGE_PICTURES="+pictures)
}

// runSteps runs a program of web/test and passes on what it says.
func runSteps(t *testing.T, program string, environment ...string) {
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Minute)
	defer stop()
	steps := exec.CommandContext(ctx, "node", filepath.Join(sources, "test", program))
	steps.Env = append(os.Environ(), environment...)
	out, in := io.Pipe()
	steps.Stdout, steps.Stderr = in, in
	var group sync.WaitGroup
	group.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			t.Log(lines.Text())
		}
		_, _ = io.Copy(io.Discard, out) // behind a line that is too long
	})
	err := steps.Run()
	_ = in.Close()
	group.Wait()
	if err != nil {
		t.Errorf("node %s: %v", program, err)
	}
}

// controls answers the steps: the URL of a page, an object that changes or goes, a
// connection that somebody makes.
func controls(small *rig, fake *connections, urls map[string]func() string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /url/{page}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, urls[r.PathValue("page")]())
	})
	do := func(what func(*http.Request, []byte) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = what(r, body)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		}
	}
	mux.HandleFunc("POST /apply", do(func(_ *http.Request, body []byte) error {
		text, err := yaml.YAMLToJSON(body)
		if err != nil {
			return err
		}
		return small.api.Apply(text)
	}))
	mux.HandleFunc("POST /delete/{resource}/{namespace}/{name}", do(func(r *http.Request, _ []byte) error {
		return small.api.Delete(r.PathValue("resource"), r.PathValue("namespace"), r.PathValue("name"))
	}))
	mux.HandleFunc("POST /flow", do(func(_ *http.Request, body []byte) error {
		var record flows.Record
		if err := json.Unmarshal(body, &record); err != nil {
			return err
		}
		return fake.make(record)
	}))
	return mux
}

// connections are those that the steps make, told to every browser that listens.
type connections struct {
	mu        sync.Mutex
	listeners map[*func(flows.Record)]struct{}
}

func (c *connections) follow(ctx context.Context, _ func() flows.Names, tell func(flows.Record), note func(string)) error {
	note("node3: its agent doesn't answer")
	c.mu.Lock()
	if c.listeners == nil {
		c.listeners = map[*func(flows.Record)]struct{}{}
	}
	c.listeners[&tell] = struct{}{}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listeners, &tell)
	return nil
}

// make fails while nobody listens: the step waits until somebody does.
func (c *connections) make(record flows.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.listeners) == 0 {
		return errors.New("nobody listens")
	}
	record.Time = time.Now()
	for tell := range c.listeners {
		(*tell)(record)
	}
	return nil
}

// someAgents are one that is well, one that lags and has left something out, and
// one that doesn't answer.
func someAgents(context.Context) []agentlink.Found {
	nobody := agentlink.New("/nonexistent/agent.sock")
	well := agentlink.Status{Node: "node1", Mode: "nftables", Version: "v1.2.0", Services: 6, Started: time.Now().Add(-time.Hour), Applied: time.Now().Add(-time.Minute)}
	lags := agentlink.Status{
		Node: "node2", Mode: "ebpf", Version: "v1.2.0", Services: 6, Started: time.Now().Add(-time.Hour), Applied: time.Now().Add(-time.Hour),
		Waiting: time.Now().Add(-90 * time.Second), Lacks: []string{"SCTP"}, LeftOut: []agentlink.LeftOut{{Name: "shop/orders:http", What: "shop/orders:http: port 30080 is taken"}},
	}
	return []agentlink.Found{
		{Client: nobody, Status: well}, {Client: nobody, Status: lags},
		{Client: nobody, Status: agentlink.Status{Node: "node3"}, Err: errors.New("ask the agent at /run/fairway/agent.sock: connection refused")},
	}
}
