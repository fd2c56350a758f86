package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// logOptions are those of PodLogOptions (k8s.io/api/core/v1), which `kubectl logs`
// sets.
type logOptions struct {
	follow, previous, timestamps bool
	since                        time.Time
	tail, limit                  int64 // -1 for all
}

func parseLogOptions(query url.Values) (o logOptions, err error) {
	o.tail, o.limit = -1, -1
	for name, to := range map[string]*bool{"follow": &o.follow, "previous": &o.previous, "timestamps": &o.timestamps} {
		if text := query.Get(name); text != "" {
			if *to, err = strconv.ParseBool(text); err != nil {
				return o, fmt.Errorf("%s: %q is neither true nor false", name, text)
			}
		}
	}
	for name, to := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit} {
		if text := query.Get(name); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil || *to < 0 {
				return o, fmt.Errorf("%s: %q is no number from 0", name, text)
			}
		}
	}
	if text := query.Get("sinceSeconds"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 1 {
			return o, fmt.Errorf("sinceSeconds: %q is no number from 1", text)
		}
		o.since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" {
		if o.since, err = time.Parse(time.RFC3339, text); err != nil {
			return o, fmt.Errorf("sinceTime: %q is no time as in RFC 3339", text)
		}
	}
	return o, nil
}

// errLimit ends a log at its limit of bytes.
var errLimit = errors.New("limit of bytes")

// copyLog writes a log as the options ask, until ctx is done or, if they don't
// follow it, to its end.
func copyLog(ctx context.Context, w io.Writer, out *output, o logOptions) error {
	from, to, err := out.run(o.previous)
	if err != nil {
		return err
	}
	if !o.since.IsZero() {
		from = max(from, min(to, out.since(o.since)))
	}
	if from, err = tailOf(out, from, to, o.tail); err != nil {
		return err
	}
	lines := &lineWriter{w: w, out: out, timestamps: o.timestamps, left: o.limit}
	for {
		if err := lines.copy(from, to); err != nil {
			if errors.Is(err, errLimit) {
				return nil
			}
			return err
		}
		if !o.follow || o.previous {
			return nil
		}
		if from, to = to, out.await(ctx, to); from == to {
			return nil
		}
	}
}

// copyFrom writes what comes after an offset, until ctx is done or no more comes.
func copyFrom(ctx context.Context, w io.Writer, out *output, from int64) error {
	lines := &lineWriter{w: w, out: out, left: -1}
	for {
		to := out.await(ctx, from)
		if to == from {
			return nil
		}
		if err := lines.copy(from, to); err != nil {
			return err
		}
		from = to
	}
}

// tailOf is where the last lines of a part begin; -1 is all of them.
func tailOf(out *output, from, to, lines int64) (int64, error) {
	if lines < 0 {
		return from, nil
	}
	r, err := out.reader(from, to)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	begins := []int64{from} // of lines, the last ones
	at := from
	for b := bufio.NewReader(r); ; {
		line, err := b.ReadSlice('\n')
		at += int64(len(line))
		if err == nil && at < to {
			begins = append(begins, at)
			begins = begins[max(0, int64(len(begins))-max(lines, 1)):]
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if lines == 0 {
		return to, nil
	}
	return begins[0], nil
}

// lineWriter writes parts of a log, up to a limit, with times before lines if
// they are asked for.
type lineWriter struct {
	w          io.Writer
	out        *output
	timestamps bool
	left       int64 // -1 is no limit
	inLine     bool
}

func (l *lineWriter) copy(from, to int64) error {
	r, err := l.out.reader(from, to)
	if err != nil {
		return err
	}
	defer r.Close()
	if !l.timestamps {
		_, err := io.Copy(writerFunc(l.write), r)
		return err
	}
	for b := bufio.NewReader(r); ; {
		line, err := b.ReadSlice('\n')
		if len(line) > 0 {
			if err := l.line(line, from); err != nil {
				return err
			}
			from += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func (l *lineWriter) line(line []byte, at int64) error {
	if !l.inLine {
		if _, err := l.write([]byte(l.out.timeOf(at).Format(time.RFC3339Nano) + " ")); err != nil {
			return err
		}
	}
	l.inLine = line[len(line)-1] != '\n'
	_, err := l.write(line)
	return err
}

func (l *lineWriter) write(p []byte) (int, error) {
	n := len(p)
	if l.left >= 0 {
		n = int(min(int64(n), l.left))
		l.left -= int64(n)
	}
	written, err := l.w.Write(p[:n])
	if err != nil {
		return written, err
	}
	if f, ok := l.w.(http.Flusher); ok {
		f.Flush()
	}
	if written < len(p) {
		return written, errLimit
	}
	return written, nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
