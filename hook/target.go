package hook

import (
	"context"
	"fmt"
	"strings"
)

// Target takes states. Taking the same state twice must do nothing twice.
type Target interface {
	// Deliver returns when the state is in force, with what the target says
	// about it. An error has the state delivered again.
	Deliver(ctx context.Context, s *State) (*Answer, error)
	// String names the target for people.
	String() string
}

// firstLine is a text's first line, short enough for a log line or an Event.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "?"))
	const most = 200
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "..."
	}
	return line
}

// limited keeps the beginning of what is written to it, and takes all.
type limited struct {
	data []byte
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.most - len(l.data); room > 0 {
		l.data = append(l.data, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// maxAnswer is how much of what a target says is read.
const maxAnswer = 8 << 20

// said adds to an error what a program wrote to standard error.
func said(err error, stderr []byte) error {
	if line := firstLine(string(stderr)); line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}
