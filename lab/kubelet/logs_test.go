package kubelet

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogs reads the log of a container that has run twice, as kubectl asks for it.
func TestLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	synctest.Test(t, func(t *testing.T) {
		out, err := openOutput(path)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text string) {
			if _, err := io.WriteString(out, text); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		out.begin()
		write("before\n")
		out.begin()
		began := time.Now().UTC()
		write("one\n")
		write("two\nthr")
		write("ee\nunfinished")
		for query, want := range map[string]string{
			"":                 "one\ntwo\nthree\nunfinished",
			"previous=true":    "before\n",
			"tailLines=0":      "",
			"tailLines=1":      "unfinished",
			"tailLines=2":      "three\nunfinished",
			"tailLines=99":     "one\ntwo\nthree\nunfinished",
			"limitBytes=5":     "one\nt",
			"sinceSeconds=1":   "ee\nunfinished",
			"sinceSeconds=100": "one\ntwo\nthree\nunfinished",
			"sinceTime=" + url.QueryEscape(began.Add(time.Second).Format(time.RFC3339)): "two\nthree\nunfinished",
			"timestamps=1&tailLines=2": fmt.Sprintf("%s three\n%s unfinished",
				time.Now().Add(-2*time.Second).Format(time.RFC3339Nano), time.Now().Add(-time.Second).Format(time.RFC3339Nano)),
		} {
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			options, err := parseLogOptions(values)
			if err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			var got bytes.Buffer
			if err := copyLog(t.Context(), &got, out, options); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			if got.String() != want {
				t.Errorf("%s: got %q, want %q", query, got.String(), want)
			}
		}
		r, w := io.Pipe()
		go func() {
			_ = w.CloseWithError(copyLog(t.Context(), w, out, logOptions{follow: true, tail: 0, limit: -1}))
		}()
		synctest.Wait()
		go func() {
			write(" line\n")
			_ = out.Close()
		}()
		if followed, err := io.ReadAll(r); err != nil || string(followed) != " line\n" {
			t.Errorf("followed: %q, %v", followed, err)
		}
	})
}

// TestLogOptions: what can't be read names the option.
func TestLogOptions(t *testing.T) {
	for _, query := range []string{"tailLines=-1", "limitBytes=x", "sinceSeconds=0", "sinceTime=yesterday", "follow=perhaps"} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(query, "=")
		if _, err := parseLogOptions(values); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", query, err)
		}
	}
}
