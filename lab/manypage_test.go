package lab_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/fairway-net/fairway/lab"
)

// pageTime is for how long a page is looked at.
const pageTime = 30 * time.Second

// pageCosts logs the CPU time that the agent, the API server and the page take in half a minute
// without a page, with its list of Services open, and with one Service open, of which the agent
// counts every two seconds.
func pageCosts(t *testing.T, name, service string) {
	t.Helper()
	took := func(what string, do func()) {
		before := cpuOf(t, name)
		do()
		line := ""
		for _, role := range []string{" agent ", " server ", " web "} {
			line += role + (cpuOf(t, name)[role] - before[role]).String()
		}
		t.Logf("%s, %s:%s", what, pageTime, line)
	}
	took("no page", func() { time.Sleep(pageTime) }) // what is measured
	at, err := url.Parse(web(t, lab.Kubeconfig(name))())
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	read := func(ctx context.Context, path string) int64 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return 0
		}
		defer answer.Body.Close() //nolint:errcheck // only read
		n, err := io.Copy(io.Discard, answer.Body)
		if answer.StatusCode != http.StatusOK || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %s, %v", path, answer.Status, err)
		}
		return n
	}
	read(t.Context(), at.String())
	api := "http://" + at.Host + "/api/v1/"
	took("its first half minute", func() { time.Sleep(pageTime) }) // what is measured
	took("the list open", func() {
		ctx, stop := context.WithTimeout(t.Context(), pageTime)
		defer stop()
		read(ctx, api+"services?sort=worst")
		read(ctx, api+"events")
	})
	took("one Service open", func() {
		for range wait.Tries(pageTime) {
			read(t.Context(), api+"services/default/"+service+"/traffic")
		}
	})
}

// cpuOf is the CPU time that processes of a lab have taken, by their role.
func cpuOf(t *testing.T, name string) map[string]time.Duration {
	t.Helper()
	used := map[string]time.Duration{}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		words, err := os.ReadFile(path)
		line := string(bytes.ReplaceAll(words, []byte{0}, []byte(" ")))
		if err != nil || !strings.Contains(line, lab.Dir(name)+"/") {
			continue // another's, or over
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		_, after, found := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if err != nil || !found || len(fields) < 13 {
			continue
		}
		for _, role := range []string{" agent ", " server ", " web "} {
			if !strings.Contains(line, role) {
				continue
			}
			for _, ticks := range fields[11:13] { // utime and stime, of which there are 100 a second
				if n, err := strconv.Atoi(ticks); err == nil {
					used[role] += time.Duration(n) * 10 * time.Millisecond
				}
			}
		}
	}
	return used
}

// web runs `fairway web`, and returns what has it print a URL.
func web(t *testing.T, kubeconfig string) (url func() string) {
	c := exec.CommandContext(t.Context(), os.Args[0], "web", "--kubeconfig", kubeconfig)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // it was asked to end
	lines := bufio.NewScanner(out)
	next := func() string {
		for lines.Scan() {
			if line := lines.Text(); strings.HasPrefix(line, "http://") {
				return line
			}
		}
		return "fairway web has ended"
	}
	if first := next(); !strings.HasPrefix(first, "http://") {
		t.Fatal(first)
	}
	return func() string {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return err.Error()
		}
		return next()
	}
}
