package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/flows"
)

//go:embed dist
var dist embed.FS

// Config says what a page is made from. What is nil isn't shown.
type Config struct {
	Client  kubernetes.Interface // with the user's rights
	Server  string               // URL of the API, to be shown
	Flags   string               // that the commands to be copied need, such as --kubeconfig FILE
	Version string               // of the program
	Domain  string               // of the cluster's names
	Compile compile.Config       // as explain takes it
	// Agents asks the agents that can be reached from here.
	Agents func(context.Context) []agentlink.Found
	// InForce is what those agents have in force, for an API that failed as it says.
	InForce func(ctx context.Context, failed error) (*explain.Objects, error)
	// Examine is doctor in full, for one Service.
	Examine func(ctx context.Context, namespace, name, from string) (*doctor.Report, error)
	// Beside is what doctor finds beside the Services themselves: which of those given no node
	// announces, and objects that nobody acts on. It is named "namespace/name", or with a kind
	// before that.
	Beside func(ctx context.Context, services []*corev1.Service) []doctor.ServiceReport
	// Flows tells of connections until ctx is done, and what it can't tell of.
	Flows func(ctx context.Context, names func() flows.Names, tell func(flows.Record), note func(string)) error
}

// Page is a page for one browser, or for several if it is shared.
type Page struct {
	config  Config
	guard   *guard
	store   *store
	survey  *survey
	history *history
	agents  *agents
	beside  beside
	hub     *hub
	names   names
}

// New makes a page that will be served at a port.
func New(config Config, port uint16) *Page { return NewShared(config, port, netip.Addr{}, time.Time{}) }

// NewShared makes a page for all browsers that come with its token, at an address of this machine,
// until some time.
// They see what config has the rights to see.
func NewShared(config Config, port uint16, at netip.Addr, until time.Time) *Page {
	p := &Page{config: config, guard: newGuard(port, at, until), store: newStore(), hub: newHub(), agents: &agents{ask: config.Agents}}
	p.survey = newSurvey(p.store, config.Compile, config.Domain, func() { p.hub.publish(topicServices) })
	p.names.store = p.store
	p.history = &history{told: func() { p.hub.publish(topicChanges) }}
	return p
}

// Serve serves the page at a listener until ctx is done, and follows the API
// meanwhile. The listener is closed.
func (p *Page) Serve(ctx context.Context, listener net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { p.watch(ctx, p.config.Client) })
	group.Go(func() { p.watchInForce(ctx) })
	group.Go(func() { p.survey.run(ctx) })
	server := p.server(ctx)
	closing := context.AfterFunc(ctx, func() { _ = server.Close() }) // streams too: nobody waits for them
	err := server.Serve(listener)
	ended := ctx.Err() != nil
	closing()
	stop()
	group.Wait()
	if ended {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}

func (p *Page) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler: p.Handler(), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, // strangers' connections don't pile up
	}
}

// Token is what the URL needs: it is good once. Each call makes another one.
func (p *Page) Token() string { return p.guard.renew() }

// Handler answers all requests.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/summary", p.summary)
	mux.HandleFunc("GET /api/v1/problems", p.problems)
	mux.HandleFunc("GET /api/v1/services", p.services)
	mux.HandleFunc("GET /api/v1/services/{namespace}/{name}", p.service)
	mux.HandleFunc("GET /api/v1/services/{namespace}/{name}/traffic", p.traffic)
	mux.HandleFunc("POST /api/v1/services/{namespace}/{name}/examine", p.examine)
	mux.HandleFunc("GET /api/v1/nodes", p.nodes)
	mux.HandleFunc("GET /api/v1/changes", p.changes)
	mux.HandleFunc("GET /api/v1/causes/{code}", p.cause)
	mux.HandleFunc("GET /api/v1/events", p.events)
	mux.HandleFunc("GET /api/v1/flows", p.flows)
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Errorf("there is no %s", r.URL.Path))
	})
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // of a name that is written here
	}
	mux.Handle("GET /", http.FileServerFS(files))
	return p.guard.protect(mux)
}

// header begins every answer.
type header struct {
	APIVersion string `json:"apiVersion"` // explain.SchemaVersion
	Kind       string `json:"kind"`
}

func headerOf(kind string) header { return header{explain.SchemaVersion, kind} }

func reply(w http.ResponseWriter, body any) { answer(w, http.StatusOK, body) }

func fail(w http.ResponseWriter, code int, err error) {
	answer(w, code, struct {
		header
		Error string `json:"error"`
	}{headerOf("Error"), err.Error()})
}

func answer(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(data); err != nil {
		return // the browser went away
	}
}

// pageOf is which part of a list a request wants.
func pageOf(r *http.Request) (offset, limit int, err error) {
	number := func(name string, otherwise, most int) int {
		text := r.FormValue(name)
		if text == "" {
			return otherwise
		}
		n, wrong := strconv.Atoi(text)
		if wrong != nil || n < 0 {
			err = errors.Join(err, fmt.Errorf("%s: %q is no number", name, text))
		}
		return min(n, most)
	}
	const mostOffset = 1 << 30
	offset, limit = number("offset", 0, mostOffset), number("limit", mostRows, mostRows)
	return offset, limit, err
}
