package haproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// control is the socket by which haproxy is told of changes.
type control string

// said counts commands, for tests of what a change costs.
var said atomic.Int64

// maxCommand is how long a command may be: haproxy reads it into one buffer.
const maxCommand = 24 << 10

var errRefused = errors.New("haproxy refused")

// ask sends a command and returns the answer.
func (c control) ask(command string) (string, error) {
	said.Add(1)
	conn, err := net.Dial("unix", string(c))
	if err != nil {
		return "", fmt.Errorf("reach haproxy: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", fmt.Errorf("reach haproxy: %w", err)
	}
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", fmt.Errorf("tell haproxy: %w", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("hear haproxy: %w", err)
	}
	return strings.TrimSpace(string(answer)), nil
}

// do sends a command; any answer but the given ones is a refusal.
func (c control) do(command string, fine ...string) error {
	answer, err := c.ask(command)
	if err != nil || answer == "" {
		return err
	}
	for _, text := range fine {
		if strings.Contains(answer, text) {
			return nil
		}
	}
	head, _, _ := strings.Cut(command, "\n")
	return fmt.Errorf("%w %q: %s", errRefused, head, answer)
}

// batch are commands that haproxy is told together: on a busy machine, each time
// that it is told something may take as long as a time slice of others.
type batch []string

func (b *batch) add(format string, a ...any) { *b = append(*b, fmt.Sprintf(format, a...)) }

// told is what haproxy says of commands of a batch that were done.
var told = []string{"New server registered"}

// send sends a batch, as much at a time as haproxy reads. Any answer but those of
// commands that were done is a refusal.
func (c control) send(commands batch) error {
	for len(commands) > 0 {
		part := commands.part()
		commands = commands[len(part):]
		answer, err := c.ask(strings.Join(part, ";"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(answer) {
			if line = strings.TrimSpace(line); line != "" && !slices.ContainsFunc(told, func(text string) bool { return strings.Contains(line, text) }) {
				return fmt.Errorf("%w one of %q and %d more: %s", errRefused, part[0], len(part)-1, line)
			}
		}
	}
	return nil
}

// part is as much of a batch as haproxy reads at a time.
func (b batch) part() batch {
	length, n := 0, 0
	for n < len(b) && (n == 0 || length+len(b[n]) < maxCommand) {
		length += len(b[n]) + 1
		n++
	}
	return b[:n]
}

// answers sends a batch, and returns what haproxy says of each command: a line.
func (c control) answers(commands batch) ([]string, error) {
	var out []string
	for len(commands) > 0 {
		part := commands.part()
		commands = commands[len(part):]
		text, err := c.ask(strings.Join(part, ";"))
		if err != nil {
			return nil, err
		}
		list := strings.Split(text, "\n")
		if len(list) != len(part) {
			return nil, fmt.Errorf("%d commands have %d answers: %q", len(part), len(list), text)
		}
		out = append(out, list...)
	}
	return out, nil
}

// word is a word of a command.
func word(s string) string {
	return strings.NewReplacer(`\`, `\\`, `;`, `\;`, ` `, `\ `).Replace(s)
}
