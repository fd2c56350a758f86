package diagnosis

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
)

// ran is what a command prints, and its error if there is one.
func ran(t *testing.T, command *cobra.Command, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetErr(&out)
	command.SetArgs(args)
	command.SilenceUsage, command.SilenceErrors = true, true
	if err := command.ExecuteContext(t.Context()); err != nil {
		out.WriteString(err.Error())
	}
	return out.String()
}

// TestReadOnce: manifests from standard input, which has them once, and from a URL, whose server may
// say something else the next time, are read once, whatever is made of them.
func TestReadOnce(t *testing.T) {
	kubeconfig := runningCluster(t)
	var asked atomic.Int32
	manifests := strings.Replace(webSame, "name: http, port: 80", "name: other, port: 81", 1) + "---\n" + webShops
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, manifests)
	}))
	defer server.Close()
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	for name, c := range map[string]struct {
		command func() *cobra.Command
		args    []string
		has     string
	}{
		"explain":            {Explain, []string{"svc/web", "--with-cluster"}, "10.96.0.10:81"},
		"explain a request":  {Explain, []string{"http://shop.example.com/", "--with-cluster"}, "default/shop"},
		"explain alone":      {Explain, []string{"svc/web"}, "default/web"},
		"a request alone":    {Explain, []string{"http://shop.example.com/"}, "default/shop"},
		"doctor":             {Doctor, []string{"--with-cluster"}, "looked at as they would be"},
		"doctor one Service": {Doctor, []string{"svc/web", "--with-cluster"}, "0 problems"},
		"doctor as SARIF":    {Doctor, []string{"--with-cluster", "-o", "sarif"}, "sarif"},
		"doctor alone":       {Doctor, []string{"svc/web"}, "no EndpointSlice lists an endpoint"},
		"diff":               {Diff, nil, "10.96.0.10:81"},
	} {
		args := append(c.args, "--kubeconfig", kubeconfig)
		asked.Store(0)
		if text := ran(t, c.command(), append(args, "-f", server.URL+"/m.yaml")...); asked.Load() != 1 || !strings.Contains(text, c.has) {
			t.Errorf("%s: the server was asked %d times; want %q in:\n%s", name, asked.Load(), c.has, text)
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(writer, manifests)
			_ = writer.Close()
		}()
		os.Stdin = reader
		if text := ran(t, c.command(), append(args, "-f", "-")...); !strings.Contains(text, c.has) {
			t.Errorf("%s of standard input lacks %q:\n%s", name, c.has, text)
		}
		_ = reader.Close()
	}
}

// TestBundle: what bundle writes of a cluster is read elsewhere by doctor and explain, offline, and
// can't be joined with another one.
func TestBundle(t *testing.T) {
	kubeconfig := runningCluster(t)
	file := filepath.Join(t.TempDir(), "b.tgz")
	if text := ran(t, Bundle(), "--kubeconfig", kubeconfig, "-o", file, "--mask-addresses", "10.244.0.0/16"); !strings.Contains(text, "wrote "+file) {
		t.Fatal(text)
	}
	nowhere := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", nowhere)
	for name, c := range map[string]struct {
		command func() *cobra.Command
		args    []string
		has     string
	}{
		"explain":         {Explain, []string{"svc/web"}, "198.18.0.1:80"},
		"doctor":          {Doctor, nil, "default/dead        FW101"},
		"doctor one":      {Doctor, []string{"svc/dead"}, "FW101"},
		"explain request": {Explain, []string{"http://shop.example.com/"}, "a bundle has no Gateways and Ingresses"},
		"joined":          {Doctor, []string{"--with-cluster"}, "a bundle can't be joined with a cluster"},
		"diff":            {Diff, nil, "a bundle can't be joined with a cluster"},
	} {
		if text := ran(t, c.command(), append(c.args, "-f", file)...); !strings.Contains(text, c.has) || strings.Contains(text, "10.244.1.2") {
			t.Errorf("%s: want %q, and no masked address:\n%s", name, c.has, text)
		}
	}
}
