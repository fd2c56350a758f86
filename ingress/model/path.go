package model

import (
	"fmt"
	"net/url"
	"strings"
)

// NormalPath returns a path as it is matched and passed on: with the segments
// "." and ".." resolved, written plainly or not, and with an initial slash.
// All else that is escaped stays so. Without this, /public/../admin would be
// let in by a rule for /public and mean /admin to who answers.
func NormalPath(escaped string) string {
	if !strings.HasPrefix(escaped, "/") {
		escaped = "/" + escaped
	}
	if !strings.Contains(escaped, "/.") && !strings.Contains(strings.ToLower(escaped), "/%2e") {
		return escaped
	}
	var out []string
	parts := strings.Split(escaped[1:], "/")
	for i, part := range parts {
		plain := strings.ReplaceAll(strings.ReplaceAll(part, "%2e", "."), "%2E", ".")
		last := i == len(parts)-1
		switch plain {
		case ".":
			if last {
				out = append(out, "")
			}
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, part)
		}
	}
	return "/" + strings.Join(out, "/")
}

// PathOf is the path of a URL as it is matched and passed on: as it came, and normal.
// A "#", which would end it for who reads it as a URL, and bytes beyond ASCII are
// escaped.
func PathOf(u *url.URL) string { return NormalPath(AsItCame(u)) }

// AsItCame is the path of a URL, where [url.URL.EscapedPath] escapes more than was.
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
	u.Path, u.RawPath, u.Opaque = Unescape(path), path, ""
	if !strings.HasPrefix(path, "//") && isSendable(path) {
		u.Opaque = path
	}
}

// isSendable reports whether a path is one to who reads it: visible characters, and
// escapes that are whole.
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

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// HasPathPrefix reports whether the elements of prefix are the first ones of path.
func HasPathPrefix(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
}

// PathEdit replaces a path or the part of it that a rule matched.
type PathEdit struct {
	Full   bool   // the whole path, not only what matched
	Value  string // what to put there
	Groups bool   // Value refers to what the rule's regular expression caught: $1
}

// Apply returns the path that a request has after the edit.
func (e *PathEdit) Apply(path string, m *Match) string {
	switch {
	case e.Groups && m.Regexp != nil:
		found := m.Regexp.FindStringSubmatchIndex(path)
		if found == nil {
			return path
		}
		return rooted(string(m.Regexp.ExpandString(nil, e.Value, path, found)))
	case e.Full:
		return rooted(e.Value)
	}
	rest := path[min(len(path), len(strings.TrimSuffix(m.Path, "/"))):]
	if rest == "" {
		return rooted(e.Value)
	}
	return rooted(strings.TrimSuffix(e.Value, "/") + rest)
}

func rooted(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "/" + path
	}
	return path
}

// Unescape returns the plain form of an escaped path; what can't be read stays.
func Unescape(path string) string {
	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}
	return path
}
