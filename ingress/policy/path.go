package policy

import "strings"

// Path returns the normal form of an escaped path. That form is matched, checked,
// rewritten and passed on, so all of these mean the same:
//
//	begins with a slash     "a" is "/a"
//	escapes                 those of unreserved characters are decoded (RFC 3986, 6.2.2.2),
//	                        others have capital digits: "%61%2f" is "a%2F". A "%" that
//	                        begins none is "%25"
//	a backslash             is escaped: "\" is "%5C"
//	slashes                 several are one: "//a" is "/a"
//	"." and ".."            are resolved, and lead nowhere above "/"
//
// An escaped slash or backslash stays one: in "/queues/%2F" it is data. Who answers may
// take it for a slash nonetheless. For such a path, other is the normal form with these
// as slashes; it is "" for all others. A request passes if both lead to the same; see
// [model.Socket.Decide].
func Path(escaped string) (normal, other string) {
	if isNormal(escaped) {
		return escaped, ""
	}
	plain, hidden := decode(escaped)
	if hidden {
		other = resolve(hiddenSlashes.Replace(plain))
	}
	return resolve(plain), other
}

var hiddenSlashes = strings.NewReplacer("%2F", "/", "%5C", "/")

// isNormal reports whether a path has nothing that Path changes. Most have nothing.
func isNormal(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := range len(path) {
		switch path[i] {
		case '%', '\\':
			return false
		case '/', '.':
			if i > 0 && path[i-1] == '/' {
				return false
			}
		}
	}
	return true
}

// decode writes escapes in one way, and reports whether one hides a slash.
func decode(path string) (plain string, hidden bool) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c, isEscape := path[i], false
		if c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]) {
			c, isEscape = digit(path[i+1])<<4|digit(path[i+2]), true
			i += 2
		}
		switch {
		case c == '%' && !isEscape: // what follows must not become one with it
			writeEscape(&b, c)
		case c == '\\' || isEscape && c == '/':
			hidden = true
			writeEscape(&b, c)
		case isEscape && !isUnreserved(c):
			writeEscape(&b, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), hidden
}

const hexDigits = "0123456789ABCDEF"

func writeEscape(b *strings.Builder, c byte) {
	b.WriteByte('%')
	b.WriteByte(hexDigits[c>>4])
	b.WriteByte(hexDigits[c&15])
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func digit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// isUnreserved is RFC 3986, 2.3.
func isUnreserved(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '.' || c == '_' || c == '~'
}

// resolve merges slashes and goes by "." and "..".
func resolve(path string) string {
	var out []string
	parts := strings.Split(path, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch part {
		case "", ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, part)
			continue
		}
		if last && len(out) > 0 {
			out = append(out, "") // it ends with a slash
		}
	}
	return "/" + strings.Join(out, "/")
}

// RulePath is the normal form of a path that a rule names: without it, a rule for
// "/%7Eada" would match nothing.
func RulePath(path string) string {
	normal, _ := Path(path)
	return normal
}
