package policy

import (
	"fmt"
	"net/url"
	"strings"
)

// AsItCame is the path of a URL, where [url.URL.EscapedPath] escapes more than was.
// A "#", which would end the path in a URL, and bytes beyond ASCII are
// escaped.
func AsItCame(u *url.URL) string {
	if u.RawPath == "" { // url.Parse has found that nothing else would come out
		return u.EscapedPath()
	}
	if !strings.ContainsFunc(u.RawPath, isEscapedAlways) {
		return u.RawPath
	}
	var b strings.Builder
	for i := range len(u.RawPath) {
		if c := u.RawPath[i]; isEscapedAlways(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isEscapedAlways(c rune) bool { return c == '#' || c >= 0x80 }

// SetPath has a request for a URL ask for a path as it is, if that can be sent: without
// this, [url.URL.RequestURI] escapes characters that didn't come so. A path that begins
// with two slashes would be taken for a host then.
func SetPath(u *url.URL, path string) {
	u.Path, u.RawPath, u.Opaque = unescape(path), path, ""
	if !strings.HasPrefix(path, "//") && isSendable(path) {
		u.Opaque = path
	}
}

// isSendable reports whether a path can stand in a request: visible characters, and
// whole escapes.
func isSendable(path string) bool {
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c <= ' ' || c >= 0x7f || c == '#' || c == '?':
			return false
		case c == '%':
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return false
			}
		}
	}
	return path != ""
}

// unescape returns the plain form of an escaped path; what can't be read stays.
func unescape(path string) string {
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}
