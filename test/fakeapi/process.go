package fakeapi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// hello is the first line of a server's process.
type hello struct {
	URL string
	CA  []byte
}

// Play is a server in a process of its own: it serves at an address and does
// what it reads, line by line, until the input ends.
func (s *Server) Play(address string, in io.Reader, out io.Writer) error {
	url, ca, closer, err := s.Listen(address)
	if err != nil {
		return err
	}
	defer closer()
	replies := json.NewEncoder(out)
	if err := replies.Encode(hello{url, ca}); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var r reply
		text, err := s.Do(strings.TrimSuffix(line, "\n"))
		if r.Text = text; err != nil {
			r.Error = err.Error()
		}
		if err := replies.Encode(r); err != nil {
			return err
		}
	}
}

type reply struct{ Text, Error string }

// Process is a server in a process of its own, as its test sees it.
type Process struct {
	URL string
	CA  []byte

	mu      sync.Mutex
	command *exec.Cmd
	in      io.WriteCloser
	replies *json.Decoder
}

// Start runs a command whose process calls [Server.Play].
func Start(command *exec.Cmd) (*Process, error) {
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &Process{command: command, in: in, replies: json.NewDecoder(out)}
	var h hello
	if err := p.replies.Decode(&h); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	p.URL, p.CA = h.URL, h.CA
	return p, nil
}

// Do has the process do a line.
func (p *Process) Do(line string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", err
	}
	var r reply
	if err := p.replies.Decode(&r); err != nil {
		return "", err
	}
	if r.Error != "" {
		return "", fmt.Errorf("%.60s: %s", line, r.Error)
	}
	return r.Text, nil
}

// Close ends the process.
func (p *Process) Close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.command.Wait()
}
