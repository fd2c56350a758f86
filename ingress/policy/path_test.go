package policy

import (
	"strings"
	"testing"
)

// TestPath is the table of docs/how-to/ingress.md.
func TestPath(t *testing.T) {
	for _, test := range []struct{ path, normal, other string }{
		{"/a/b", "/a/b", ""},
		{"", "/", ""},
		{"a", "/a", ""},
		{"/%61dmin", "/admin", ""},
		{"/%7e/%2D%5f", "/~/-_", ""},
		{"/a%20b%c3%a9", "/a%20b%C3%A9", ""},
		{"//admin", "/admin", ""},
		{"/a//b///", "/a/b/", ""},
		{"/a/./b/..", "/a/", ""},
		{"/a/../../b", "/b", ""},
		{"/a/%2e%2E/b", "/b", ""},
		{"/a//../b", "/b", ""},
		{"/a/...", "/a/...", ""},
		{"/queues/%2f", "/queues/%2F", "/queues/"},
		{"/x/..%2fadmin", "/x/..%2Fadmin", "/admin"},
		{`/x\..\admin`, "/x%5C..%5Cadmin", "/admin"},
		{"/%252fx", "/%252fx", ""},
		{"/a;b=c", "/a;b=c", ""},
		{"/a%zz%4%30", "/a%25zz%2540", ""},
	} {
		if normal, other := Path(test.path); normal != test.normal || other != test.other {
			t.Errorf("%s: %q, %q; want %q, %q", test.path, normal, other, test.normal, test.other)
		}
	}
}

// FuzzPath: a normal form is its own, has no way around a rule, and its other reading has
// neither.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/a/b", "//", "/%2e/%2E%2e", `/\%5c`, "/%2f..%2F", "/%25%32%65", "%", "/..;/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		normal, other := Path(path)
		if again, _ := Path(normal); again != normal {
			t.Fatalf("%q: %q becomes %q", path, normal, again)
		}
		for _, one := range []string{normal, other} {
			if one == "" {
				continue
			}
			if !strings.HasPrefix(one, "/") || strings.Contains(one, "//") || strings.Contains(one, `\`) || strings.Contains(one+"/", "/../") || strings.Contains(one+"/", "/./") {
				t.Fatalf("%q: %q is not normal", path, one)
			}
			for i := 0; i+2 < len(one); i++ {
				if one[i] == '%' && isHex(one[i+1]) && isHex(one[i+2]) && isUnreserved(digit(one[i+1])<<4|digit(one[i+2])) {
					t.Fatalf("%q: %q has an escape that needn't be", path, one)
				}
			}
		}
	})
}
