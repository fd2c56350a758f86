package hook

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func example() *State {
	return snapshot{services: map[string]*Service{"default/web": buildService(service("web", 80), nil, true)}}.full()
}

// TestExec: a command gets one line, and may answer; one that hangs is killed
// with its children, and what it prints that makes no sense does no harm.
func TestExec(t *testing.T) {
	out := filepath.Join(t.TempDir(), "input")
	e := &Exec{Command: "cat >" + out + `; echo '{"services": {"default/web": {"ingress": []}}}'`, Timeout: waitTimeout}
	answer, err := e.Deliver(t.Context(), example())
	if err != nil || answer.Services["default/web"].Ingress == nil {
		t.Errorf("%+v, %v", answer, err)
	}
	data, err := os.ReadFile(out)
	var s State
	if err != nil || strings.Count(string(data), "\n") != 1 || json.Unmarshal(data, &s) != nil || s.Services[0].Name != "web" {
		t.Errorf("input %q, %v", data, err)
	}
	for command, want := range map[string]string{
		"echo broken >&2; exit 3":     "exit status 3: broken",
		"sleep 600 & sleep 600":       "no end after 100ms: killed",
		"no-such-program 2>/dev/null": "exit status 127",
	} {
		e := &Exec{Command: command, Timeout: waitTimeout}
		if strings.Contains(command, "sleep") {
			e.Timeout = 100 * time.Millisecond
		}
		if _, err := e.Deliver(t.Context(), example()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
	}
	e = &Exec{Command: "printf 'done\\n\\033[31mred'; yes | head -c 100000", Timeout: waitTimeout}
	if answer, err := e.Deliver(t.Context(), example()); err != nil || !strings.Contains(answer.nonsense, "done") || len(answer.nonsense) > 500 {
		t.Errorf("nonsense: %+v, %v", answer, err)
	}
}

func TestWebhook(t *testing.T) {
	status, body := 200, ""
	var got State
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "secret" || json.NewDecoder(r.Body).Decode(&got) != nil {
			status = 400
		}
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	w := &Webhook{URL: server.URL, Timeout: waitTimeout, Header: http.Header{"Authorization": {"secret"}}, Client: NewClient()}
	body = `{"services": {"default/web": {"error": "full"}}}`
	if answer, err := w.Deliver(t.Context(), example()); err != nil || answer.Services["default/web"].Error != "full" || len(got.Services) != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
	for _, status = range []int{302, 500} {
		body = "sorry\nindeed"
		if _, err := w.Deliver(t.Context(), example()); err == nil || !strings.HasSuffix(err.Error(), ": sorry") {
			t.Errorf("status %d: %v", status, err)
		}
	}
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client has gone
		<-r.Context().Done()
	}))
	defer hangs.Close()
	defer hangs.CloseClientConnections()
	w.URL, w.Timeout = hangs.URL, 50*time.Millisecond
	if _, err := w.Deliver(t.Context(), example()); err == nil || !strings.Contains(err.Error(), "no answer after 50ms") {
		t.Errorf("hanging: %v", err)
	}
}

// TestTemplate: the file is written and the command run where the text changes;
// a file that the check refuses is not taken; a reload that failed is tried again.
func TestTemplate(t *testing.T) {
	dir := t.TempDir()
	in, out, ran := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "ran")
	write := func(text string) {
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs := func() int { data, _ := os.ReadFile(ran); return strings.Count(string(data), "x") }
	tmpl := &Template{File: in, Out: out, Check: "grep -q . {}", Reload: "echo x >>" + ran + "; test ! -e " + dir + "/broken", Timeout: waitTimeout}
	deliver := func() error { _, err := tmpl.Deliver(t.Context(), example()); return err }
	write(`{{range services}}{{.Name}}{{range .Ports}}:{{.Port}}{{end}}{{end}} {{add 1 2}} {{"a,b" | split "," | join "+"}} {{"x.y" | identifier}}`)
	for range 2 {
		if err := deliver(); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(out); string(data) != "web:80 3 a+b x_y" || err != nil || runs() != 1 {
		t.Errorf("%q, %v, %d runs", data, err, runs())
	}
	write("")
	if err := deliver(); err == nil || !strings.Contains(err.Error(), "check command") {
		t.Errorf("refused file: %v", err)
	}
	if data, _ := os.ReadFile(out); string(data) != "web:80 3 a+b x_y" {
		t.Errorf("after a refused file: %q", data)
	}
	write("next")
	if err := os.WriteFile(dir+"/broken", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := deliver(); err == nil {
		t.Error("a reload that fails is no failure")
	}
	if err := os.Remove(dir + "/broken"); err != nil {
		t.Fatal(err)
	}
	if err := deliver(); err != nil || runs() != 3 {
		t.Errorf("%v, %d runs", err, runs())
	}
	write("{{.Nonsense}}")
	if err := deliver(); err == nil {
		t.Error("a template that makes no sense is executed")
	}
}

// device is a load balancer with a REST API: sessions end after some requests,
// and it refuses pools it has no room for.
type device struct {
	mu     sync.Mutex
	token  int
	left   int // requests of the session
	room   bool
	pools  map[string]json.RawMessage
	writes int
}

func (d *device) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fail := func(code int, text string) { http.Error(w, text, code) }
	say := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if r.URL.Path == "/login" {
		var in struct{ User, Password string }
		if json.NewDecoder(r.Body).Decode(&in) != nil || in.Password != "secret" {
			fail(403, "who are you?")
			return
		}
		d.token++
		d.left = 3
		say(map[string]string{"token": strings.Repeat("t", d.token)})
		return
	}
	if d.left--; d.left < 0 || r.Header.Get("X-Session") != strings.Repeat("t", d.token) {
		fail(401, "the session has ended")
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/pools/")
	switch {
	case r.Method == http.MethodGet:
		say(d.pools)
	case r.Method == http.MethodDelete:
		delete(d.pools, name)
		d.writes++
		say(nil)
	case !d.room && strings.Contains(name, "late"):
		fail(507, "no room for another pool")
	default:
		var pool map[string]any
		if json.NewDecoder(r.Body).Decode(&pool) != nil {
			fail(400, "what?")
			return
		}
		pool["address"] = "192.0.2.80"
		d.pools[name], _ = json.Marshal(pool)
		d.writes++
		say(pool)
	}
}

// TestDevice runs examples/hooks/device: sessions that end, one Service that is
// refused while the others work, and pools of others that stay.
func TestDevice(t *testing.T) {
	d := &device{pools: map[string]json.RawMessage{"theirs": json.RawMessage(`{}`), "fairway.default.gone.80": json.RawMessage(`{}`)}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/password", []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	target := &Exec{Command: "../examples/hooks/device/device-hook --device " + server.URL + " --password-file " + dir + "/password --session-file " + dir + "/session", Timeout: waitTimeout}
	r := newRig(t, target, nil, service("early", 80), service("late", 81), slice("early", 2, "10.0.0.1:8080"))
	r.hears("HookRefused PUT /pools/fairway.default.late.81: status 507: no room for another pool")
	r.until("the other works", func() bool { return r.ingress("early") == "192.0.2.80" })
	d.mu.Lock()
	d.room = true
	d.mu.Unlock()
	r.until("there is room", func() bool { return r.ingress("late") == "192.0.2.80" })
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, kept := d.pools["theirs"]; !kept || len(d.pools) != 3 || d.writes != 3 {
		t.Errorf("pools %s after %d writes", d.pools, d.writes)
	}
	if d.token < 2 {
		t.Error("the session never ended")
	}
}
