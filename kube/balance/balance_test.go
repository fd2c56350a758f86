package balance

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// server is an API server as far as a balancer can tell.
type server struct {
	*httptest.Server
	// state is what it does with requests.
	state atomic.Int32
}

const (
	works int32 = iota
	saysUnready
	isSilent
	knowsNobody // its clock is off, say: certificates aren't valid for it
)

func serve(t *testing.T, name string) *server {
	s := &server{}
	ended := make(chan struct{})
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case s.state.Load() == isSilent:
			select {
			case <-req.Context().Done():
			case <-ended:
			}
		case s.state.Load() == knowsNobody && req.URL.Path != "/readyz":
			w.WriteHeader(http.StatusUnauthorized)
		case req.URL.Path == "/readyz" && s.state.Load() == saysUnready:
			w.WriteHeader(http.StatusInternalServerError)
		case req.URL.Path == "/watch":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			select {
			case <-req.Context().Done():
			case <-ended:
			}
		case req.Method == http.MethodPost:
			if _, err := io.Copy(w, req.Body); err != nil {
				t.Error(err)
			}
		default:
			if _, err := io.WriteString(w, name); err != nil {
				t.Log(err) // the client has left
			}
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		close(ended)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// balanced is a client of servers, the first of which its configuration names.
func balanced(t *testing.T, file string, servers ...*server) (*Balancer, *http.Client) {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: servers[0].Certificate().Raw})
	config := &rest.Config{Host: servers[0].URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	b, err := Attach(config, file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.period = 50 * time.Millisecond
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx, fake.NewClientset())
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.CloseIdleConnections()
	})
	return b, client
}

func remembered(t *testing.T, servers ...*server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), FileName)
	var list []string
	for _, s := range servers {
		list = append(list, s.URL)
	}
	if err := Remember(file, list, time.Now()); err != nil {
		t.Fatal(err)
	}
	return file
}

func ask(t *testing.T, client *http.Client, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/who", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for late := range wait.Tries(time.Minute) {
		if condition() {
			break
		}
		if late {
			t.Fatalf("%s doesn't come true", what)
		}
	}
}

// TestGone: the server of the kubeconfig is gone at the start, and another one
// that is remembered answers, requests with a body too.
func TestGone(t *testing.T) {
	one, two := serve(t, "one"), serve(t, "two")
	file := remembered(t, one, two)
	one.Close()
	_, client := balanced(t, file, one)
	if got, err := ask(t, client, one.URL); got != "two" {
		t.Errorf("the answer is %q, %v", got, err)
	}
	resp, err := client.Post(one.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); string(data) != "hello" {
		t.Errorf("the answer to a POST is %q, %v", data, err)
	}
}

// TestSilentAtFirst: the server of the kubeconfig takes connections and says nothing, as one that
// is stopped does, and so does a third: a client that asks once doesn't wait for them.
func TestSilentAtFirst(t *testing.T) {
	one, two, three := serve(t, "one"), serve(t, "two"), serve(t, "three")
	one.state.Store(isSilent)
	three.state.Store(isSilent)
	b, client := balanced(t, remembered(t, one, two, three), one)
	b.probe.Timeout = time.Hour
	if got, err := ask(t, client, one.URL); got != "two" {
		t.Errorf("the answer is %q, %v", got, err)
	}
}

// TestMoves: a server falls silent, or says it isn't ready: what is under way
// ends, and another server is used.
func TestMoves(t *testing.T) {
	for state, what := range map[int32]string{isSilent: "silent", saysUnready: "not ready"} {
		t.Run(what, func(t *testing.T) {
			one, two := serve(t, "one"), serve(t, "two")
			b, client := balanced(t, remembered(t, one, two), one)
			if got, err := ask(t, client, one.URL); got != "one" {
				t.Fatalf("the answer is %q, %v", got, err)
			}
			watch, err := client.Get(one.URL + "/watch")
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Body.Close()
			one.state.Store(state)
			if _, err := io.ReadAll(watch.Body); err == nil {
				t.Error("the watch at a server that was left ended well")
			}
			if got, err := ask(t, client, one.URL); got != "two" {
				t.Errorf("the answer is %q, %v", got, err)
			}
			// And back, when that one goes.
			one.state.Store(works)
			two.state.Store(state)
			eventually(t, "that the first server is used again", func() bool { return b.Server() == one.URL })
		})
	}
}

// TestNoneReady: while no server is ready the client stays where it is, where
// some things may work.
func TestNoneReady(t *testing.T) {
	one, two := serve(t, "one"), serve(t, "two")
	one.state.Store(saysUnready)
	two.state.Store(saysUnready)
	b, client := balanced(t, remembered(t, one, two), one)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for range wait.Every(ctx, 5*time.Millisecond) {
		if got, err := ask(t, client, one.URL); got != "one" {
			t.Fatalf("the answer is %q, %v", got, err)
		}
		b.suspect()
	}
	two.state.Store(works)
	eventually(t, "that the server that is ready is used", func() bool {
		got, _ := ask(t, client, one.URL)
		return got == "two"
	})
}

// TestRemember: those listed come first, those not listed any more stay for a
// while, and a broken file is replaced.
func TestRemember(t *testing.T) {
	file := filepath.Join(t.TempDir(), FileName)
	now := time.Now()
	for _, step := range []struct {
		listed []string
		at     time.Time
		want   string
	}{
		{[]string{"https://192.0.2.1:1", "https://[2001:db8::1]:1"}, now, "https://192.0.2.1:1 https://[2001:db8::1]:1"},
		{[]string{"https://192.0.2.3:1"}, now, "https://192.0.2.3:1 https://192.0.2.1:1 https://[2001:db8::1]:1"},
		{[]string{"https://192.0.2.1:1"}, now.Add(2 * forgetAfter), "https://192.0.2.1:1"},
	} {
		if err := Remember(file, step.listed, step.at); err != nil {
			t.Fatal(err)
		}
		list, err := read(file)
		if got := strings.Join(urls(list), " "); got != step.want {
			t.Errorf("after %v: %s, %v, want %s", step.listed, got, err, step.want)
		}
	}
	for _, broken := range []string{"{", `[{"url":"http://192.0.2.1"},{"url":"https://"},{"url":"https://192.0.2.1/x"}]`} {
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if list, _ := read(file); len(list) > 0 {
			t.Errorf("%s gives %v", broken, list)
		}
		if err := Remember(file, []string{"https://192.0.2.1:1"}, now); err != nil {
			t.Error(err)
		}
		if list, err := read(file); len(list) != 1 {
			t.Errorf("after %s: %v, %v", broken, list, err)
		}
	}
}

// TestLasting: a program that runs on has a balancer where the servers of its
// kubeconfig are remembered beside that, and only there.
func TestLasting(t *testing.T) {
	file := remembered(t, &server{Server: &httptest.Server{URL: "https://192.0.2.1:6443"}})
	for name, c := range map[string]struct {
		host, kubeconfig string
		want             bool
	}{
		"beside":        {"https://192.0.2.1:6443/", filepath.Join(filepath.Dir(file), "kubeconfig"), true},
		"another one's": {"https://192.0.2.9:6443", filepath.Join(filepath.Dir(file), "kubeconfig"), false},
		"elsewhere":     {"https://192.0.2.1:6443", filepath.Join(t.TempDir(), "kubeconfig"), false},
	} {
		b, err := AttachLasting(&rest.Config{Host: c.host}, c.kubeconfig, slog.New(slog.DiscardHandler))
		if err != nil || (b != nil) != c.want {
			t.Errorf("%s: %v, %v, want a balancer %v", name, b, err, c.want)
		}
	}
}

// TestUnauthorized: a server that doesn't accept who the client is, though it is
// ready, is left for one that does. Where none does, the client is told.
func TestUnauthorized(t *testing.T) {
	one, two := serve(t, "one"), serve(t, "two")
	b, client := balanced(t, remembered(t, one, two), one, two)
	if who, err := ask(t, client, one.URL); err != nil || who != "one" {
		t.Fatalf("%q answers, %v", who, err)
	}
	one.state.Store(knowsNobody)
	resp, err := client.Post(one.URL+"/echo", "text/plain", strings.NewReader("what is sent"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || string(body) != "what is sent" {
		t.Errorf("the other server answers %s: %q, %v", resp.Status, body, err)
	}
	if b.Server() != two.URL {
		t.Errorf("%s is in use", b.Server())
	}
	two.state.Store(knowsNobody)
	for range 3 {
		resp, err := client.Get(one.URL + "/who")
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("where no server accepts the client, it is told %s, %v", resp.Status, err)
		}
	}
	if b.Server() != two.URL {
		t.Errorf("%s is in use, and no better", b.Server())
	}
}
