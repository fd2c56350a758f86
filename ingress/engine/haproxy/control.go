package haproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
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

// lines sends lines that belong to a command, as many at a time as haproxy reads.
func (c control) lines(command string, lines []string) error {
	for len(lines) > 0 {
		text, n := command+" <<\n", 0
		for n < len(lines) && (n == 0 || len(text)+len(lines[n]) < maxCommand) {
			text += lines[n] + "\n"
			n++
		}
		if err := c.do(text); err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}

// each sends commands that say nothing when they are done, several at a time.
func (c control) each(commands []string) error {
	for len(commands) > 0 {
		text, n := "", 0
		for n < len(commands) && (n == 0 || len(text)+len(commands[n]) < maxCommand) {
			text += commands[n] + ";"
			n++
		}
		if err := c.do(strings.TrimSuffix(text, ";")); err != nil {
			return err
		}
		commands = commands[n:]
	}
	return nil
}

// word is a word of a command.
func word(s string) string {
	return strings.NewReplacer(`\`, `\\`, `;`, `\;`, ` `, `\ `).Replace(s)
}
