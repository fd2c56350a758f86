package model

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// variable is one of nginx' in a text: $name or ${name}.
var variable = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// CheckVariables says what of a text is no variable that [Request.Expand] knows.
func CheckVariables(text string) error {
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		if _, known := (&Request{}).variable(m[1] + m[2]); !known {
			return fmt.Errorf("%q: $%s is not supported", text, m[1]+m[2])
		}
	}
	if rest := variable.ReplaceAllString(text, ""); strings.Contains(rest, "$") {
		return fmt.Errorf("%q: $ must begin the name of a variable", text)
	}
	return nil
}

// Expand puts what the request has in the place of variables, which are nginx':
// $scheme, $host, $http_host, $request_uri, $uri, $args, $is_args, $request_method,
// $http_NAME, $arg_NAME and $cookie_NAME.
func (r *Request) Expand(text string) string { return r.expand(text, nil) }

// expand also puts what the rule's regular expression has caught in the place of $1 to $9.
func (r *Request) expand(text string, m *Match) string {
	var caught []string
	if m != nil && m.Regexp != nil {
		caught = m.Regexp.FindStringSubmatch(r.Path)
	}
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		name = strings.Trim(name, "${}")
		if n, err := strconv.Atoi(name); err == nil {
			if n < len(caught) {
				return caught[n]
			}
			return ""
		}
		value, _ := r.variable(name)
		return value
	})
}

func (r *Request) variable(name string) (value string, known bool) {
	switch name {
	case "scheme", "pass_access_scheme":
		return r.scheme(), true
	case "host", "http_host", "best_http_host", "server_name":
		return r.Host, true
	case "uri", "document_uri":
		return r.Path, true
	case "args", "query_string":
		return r.RawQuery, true
	case "is_args":
		return map[bool]string{true: "?"}[r.RawQuery != ""], true
	case "request_uri":
		if r.RawQuery == "" {
			return r.Path, true
		}
		return r.Path + "?" + r.RawQuery, true
	case "request_method":
		return r.Method, true
	}
	if arg, found := strings.CutPrefix(name, "arg_"); found {
		return r.query().Get(arg), true
	}
	if header, found := strings.CutPrefix(name, "http_"); found {
		for key, values := range r.Header {
			if strings.EqualFold(strings.ReplaceAll(key, "-", "_"), header) {
				return strings.Join(values, ", "), true
			}
		}
		return "", true
	}
	if cookie, found := strings.CutPrefix(name, "cookie_"); found {
		for pair := range strings.SplitSeq(strings.Join(r.Header["Cookie"], ";"), ";") {
			if key, value, _ := strings.Cut(strings.TrimSpace(pair), "="); key == cookie {
				return value, true
			}
		}
		return "", true
	}
	return "", false
}
