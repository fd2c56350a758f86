package model

import "strings"

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
	Query  string // that the request's is appended to; it may refer to groups, too
}

// ApplyQuery returns the query that a request has after the edit.
func (e *PathEdit) ApplyQuery(query, path string, m *Match) string {
	own := e.Query
	if e.Groups && m.Regexp != nil {
		found := m.Regexp.FindStringSubmatchIndex(path)
		if found == nil {
			return query
		}
		own = string(m.Regexp.ExpandString(nil, e.Query, path, found))
	}
	switch {
	case own == "":
		return query
	case query == "":
		return own
	}
	return own + "&" + query
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
