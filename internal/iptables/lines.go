package iptables

import "bytes"

// lineWriter hands on what is written to it line by line.
type lineWriter struct {
	take func(line []byte)
	rest []byte // the beginning of a line
}

// Write is part of io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	for text := p; ; {
		line, after, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			w.rest = append(w.rest, line...)
			return len(p), nil
		}
		if len(w.rest) > 0 {
			line = append(w.rest, line...)
			w.rest = line[:0]
		}
		w.take(line)
		text = after
	}
}

// end hands on the last line if it wasn't ended.
func (w *lineWriter) end() {
	if len(w.rest) > 0 {
		w.take(w.rest)
	}
}
