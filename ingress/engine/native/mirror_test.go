package native

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// TestMirrorStreams: a request whose body goes on while it is answered is answered
// although it is mirrored, and the copy is whole.
func TestMirrorStreams(t *testing.T) {
	copies := make(chan string, 1)
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		line := make([]byte, 5)
		for {
			n, err := io.ReadFull(r.Body, line)
			if err != nil {
				return
			}
			_, _ = w.Write(line[:n]) // an error shows with the next read
			_ = http.NewResponseController(w).Flush()
		}
	})
	mirror := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		copies <- string(body)
	})
	action := &model.Action{Backends: to("web"), Mirrors: []model.Mirror{{Pool: "mirror", Numerator: 1, Denominator: 1}}}
	e := withRule(t, action, map[string]*model.Pool{"web": poolAt("web", listening(t, web)), "mirror": poolAt("mirror", listening(t, mirror))})
	in, out := io.Pipe()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+e.Sockets()["s"].String()+"/", in)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(out, "line0") }()
	response, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	line := make([]byte, 5)
	for _, next := range []string{"line1", "line2", ""} {
		if _, err := io.ReadFull(response.Body, line); err != nil {
			t.Fatal(err)
		}
		if next != "" {
			_, _ = io.WriteString(out, next) // an error shows with the next read
		}
	}
	_ = out.Close()
	select {
	case got := <-copies:
		if got != "line0line1line2" {
			t.Errorf("the copy is %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("there is no copy")
	}
}

// TestMirrorHangs: copies that nobody answers are bounded.
func TestMirrorHangs(t *testing.T) {
	release := make(chan struct{})
	mirror := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	action := &model.Action{Backends: to("web"), Mirrors: []model.Mirror{{Pool: "mirror", Numerator: 1, Denominator: 1}}}
	e := withRule(t, action, map[string]*model.Pool{"web": poolAt("web", listening(t, answering("web"))), "mirror": poolAt("mirror", listening(t, mirror))})
	defer close(release)
	for range 2 * maxCopies {
		response, err := http.Post("http://"+e.Sockets()["s"].String()+"/", "text/plain", strings.NewReader("text")) //nolint:noctx // it is answered
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // it says nothing
		if n := e.copies.Load(); n > maxCopies {
			t.Fatalf("%d copies are under way", n)
		}
	}
	if n := e.copies.Load(); n != maxCopies {
		t.Errorf("%d copies are under way, want %d", n, maxCopies)
	}
}

// TestTee: a copy that is too far behind ends, and what it is of doesn't wait.
func TestTee(t *testing.T) {
	c := newTee()
	c.add(make([]byte, maxMirrored), nil)
	c.add([]byte("more"), nil)
	c.add(nil, io.EOF)
	if n, err := io.Copy(io.Discard, c); err == nil || n != 0 {
		t.Errorf("read %d, %v", n, err)
	}
}
