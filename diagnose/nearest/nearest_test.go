package nearest

import (
	"strings"
	"testing"
)

func TestSelector(t *testing.T) {
	hello := map[string]string{"app": "hello", "tier": "web"}
	other := map[string]string{"app": "shop", "tier": "web"}
	for _, c := range []struct {
		name     string
		selector map[string]string
		objects  []map[string]string
		want     Suggestion
		found    bool
	}{
		{"a letter is missing", map[string]string{"app": "helo"}, []map[string]string{hello, hello, other}, Suggestion{"app", "helo", "hello", 2}, true},
		{"two are swapped", map[string]string{"app": "hlelo", "tier": "web"}, []map[string]string{other, hello}, Suggestion{"app", "hlelo", "hello", 1}, true},
		{"a suffix is missing", map[string]string{"app": "hel"}, []map[string]string{hello}, Suggestion{"app", "hel", "hello", 1}, true},
		{"nothing is alike", map[string]string{"app": "database"}, []map[string]string{hello, other}, Suggestion{}, false},
		{"two labels differ", map[string]string{"app": "helo", "tier": "wep"}, []map[string]string{hello}, Suggestion{}, false},
		{"the label is missing", map[string]string{"application": "hello"}, []map[string]string{hello}, Suggestion{}, false},
		{"no objects", map[string]string{"app": "helo"}, nil, Suggestion{}, false},
	} {
		got, found := Selector(c.selector, c.objects)
		if got != c.want || found != c.found {
			t.Errorf("%s: got %+v, %t", c.name, got, found)
		}
	}
}

func TestName(t *testing.T) {
	names := []string{"web", "web-internal", "shop"}
	for name, want := range map[string]string{"wbe": "web", "shpo": "shop", "we": "web", "database": "", "web-internl": "web-internal", "WEB": "web"} {
		if got := Name(name, names); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	f.Add("web", "wbe")
	f.Add("", "a")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > 50 || len(b) > 50 {
			return
		}
		d := Distance(a, b)
		if d != Distance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Errorf("%q to %q: %d", a, b, d)
		}
		if strings.HasPrefix(a, b) && d != len(a)-len(b) {
			t.Errorf("%q to its prefix %q: %d", a, b, d)
		}
	})
}
