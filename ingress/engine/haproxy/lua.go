package haproxy

import (
	"fmt"
	"strconv"
	"strings"
)

// writer writes constants of Lua. Nothing that comes from outside can end a text:
// all that isn't a letter or digit is written as a number.
type writer struct{ strings.Builder }

func (w *writer) text(s string) {
	w.WriteByte('"')
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '/', c == '-', c == '.', c == '_':
			w.WriteByte(c)
		default:
			fmt.Fprintf(&w.Builder, `\%03d`, c)
		}
	}
	w.WriteByte('"')
}

// field writes "name=" of this program's own.
func (w *writer) field(name string) { w.WriteString(name); w.WriteByte('=') }

func (w *writer) textField(name, s string) {
	w.field(name)
	w.text(s)
	w.WriteByte(',')
}

func (w *writer) intField(name string, n int64) {
	w.field(name)
	w.WriteString(strconv.FormatInt(n, 10))
	w.WriteByte(',')
}

func (w *writer) flag(name string, on bool) {
	if on {
		w.WriteString(name)
		w.WriteString("=true,")
	}
}

// table writes name={...}; without a name if it is "".
func (w *writer) table(name string, inside func()) {
	if name != "" {
		w.field(name)
	}
	w.WriteByte('{')
	inside()
	w.WriteString("},")
}
