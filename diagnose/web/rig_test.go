package web

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/test/fakeapi"
)

// credential is the user's, with which the page reads the API.
const credential = "the-users-own-credential"

// rig is a page, an API for it to read, and a browser.
type rig struct {
	t      *testing.T
	api    *fakeapi.Server
	page   *Page
	url    string
	cookie *http.Cookie
}

// start serves a page of an API with objects given as YAML.
func start(t *testing.T, manifests string, adjust func(*fakeapi.Server, *Config)) *rig {
	t.Helper()
	api := fakeapi.NewServer()
	api.Token = credential
	config := Config{Version: "v1.2.3", Domain: "cluster.local"}
	if adjust != nil {
		adjust(api, &config)
	}
	r := &rig{t: t, api: api}
	r.apply(manifests)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := kube.Client(kube.Tune(&rest.Config{Host: server.URL, BearerToken: credential}))
	if err != nil {
		t.Fatal(err)
	}
	config.Client, config.Server = client, server.URL
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(listener.Addr().String())
	r.page, r.url = New(config, at.Port()), "http://"+at.String()
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- r.page.Serve(ctx, listener) }()
	t.Cleanup(func() { // the context is done by now
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
	})
	return r
}

func (r *rig) apply(manifests string) {
	r.t.Helper()
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			r.t.Fatal(err)
		}
		if string(text) == "null" {
			continue
		}
		if err := r.api.Apply(text); err != nil {
			r.t.Fatal(err)
		}
	}
}

// enter opens the printed URL, as a browser does.
func (r *rig) enter() *rig {
	r.t.Helper()
	response := r.do(http.MethodGet, "/?token="+r.page.Token(), nil)
	for _, c := range response.Cookies() {
		r.cookie = c
	}
	if response.StatusCode != http.StatusOK || r.cookie == nil {
		r.t.Fatalf("the URL: %s, cookie %v", response.Status, r.cookie)
	}
	return r
}

// do makes a request with the cookie that there is. "Host" among the headers is
// the name that the page is asked under.
func (r *rig) do(method, path string, header map[string]string) *http.Response {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for k, v := range header {
		request.Header.Set(k, v)
	}
	if host := header["Host"]; host != "" {
		request.Host = host
	}
	if r.cookie != nil {
		request.AddCookie(&http.Cookie{Name: r.cookie.Name, Value: r.cookie.Value})
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// get asks the API of the page.
func (r *rig) get(path string, into any) string {
	r.t.Helper()
	response := r.do(http.MethodGet, "/api/v1/"+path, nil)
	data, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s: %s", path, response.Status, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return string(data)
}

// until asks until the answer is as wanted.
func until[T any](r *rig, path string, wanted func(T) bool) T {
	r.t.Helper()
	var answer T
	for late := range wait.Tries(30 * time.Second) {
		answer = *new(T)
		text := r.get(path, &answer)
		if wanted(answer) {
			break
		}
		if late {
			r.t.Fatalf("%s: after 30 s it is still %s", path, text)
		}
	}
	return answer
}
