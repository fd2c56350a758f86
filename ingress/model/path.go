package model

import (
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
