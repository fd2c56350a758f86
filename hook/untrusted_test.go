package hook

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHostNames(t *testing.T) {
	for text, want := range map[string][]string{
		"a.example.com,B.example.com a.example.com.": {"a.example.com", "b.example.com"},
		"*.example.com":                          {"*.example.com"},
		"a.example.com; } server { return 200 x": {"server", "return", "200", "x"},
		"a\n;b":                                  {"a"},
		"a$b *.*.c {{d}} -e- ":                   {},
		"":                                       {},
	} {
		if got := hostNames(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestAnnotationsStayInTheirPlace: whatever a Service's author writes into an annotation,
// the configuration for nginx has one statement there, with host names in it.
func TestAnnotationsStayInTheirPlace(t *testing.T) {
	for _, text := range []string{
		"a.example.com;\n\tlocation /x { proxy_pass http://169.254.169.254; }\n", "x\r\nlisten 22;", "x; return 200 \"owned\";", "a # b", "${env}", "\x00;", "\u2028listen 1;", "{", "'\"",
	} {
		s := &State{Services: []*Service{{
			Namespace: "default", Name: "web", Annotations: map[string]string{"external-dns.alpha.kubernetes.io/hostname": text},
			Ports: []*Port{{Protocol: "TCP", Port: 80, Endpoints: []*Endpoint{{Address: "10.0.0.1", Port: 8080, Ready: true, Weight: 1}}}},
		}}}
		out, err := (&Template{File: "../examples/hooks/nginx/fairway.conf.tmpl"}).render(s)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), ";"); n != 7 || strings.Count(string(out), "{") != 4 { // the file's own, and one of a comment
			t.Errorf("%q: %d statements in\n%s", text, n, out)
		}
	}
}

// TestPrintable: the function annotation gives one line.
func TestPrintable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(file, []byte(`{{range services}}{{annotation . "x"}}{{end}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := (&Template{File: file}).render(&State{Services: []*Service{{Annotations: map[string]string{"x": "a\nb\r\tc\x7f\u0085"}}}})
	if err != nil || string(out) != "a b  c  " {
		t.Errorf("%q, %v", out, err)
	}
}
