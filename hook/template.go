package hook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// Template is a file that is written from a template at each state, and a
// command that has a program read it again. Neither happens where the text
// stays the same.
type Template struct {
	File, Out string
	// Check, if not "", must end with 0 before the file is replaced; {} in it is
	// the new file's name.
	Check   string
	Reload  string
	Timeout time.Duration

	loaded [sha256.Size]byte // what the last reload that worked has read
}

// String implements Target.
func (t *Template) String() string { return "template " + t.File }

// Deliver implements Target. The template is read each time: it may change.
func (t *Template) Deliver(ctx context.Context, s *State) (*Answer, error) {
	text, err := t.render(s)
	if err != nil {
		return nil, err
	}
	have, err := os.ReadFile(t.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", t.Out, err)
	}
	same := err == nil && bytes.Equal(have, text)
	sum := sha256.Sum256(text)
	if same && t.loaded == sum {
		return &Answer{}, nil
	}
	if !same {
		if err := t.replace(ctx, text); err != nil {
			return nil, err
		}
	}
	answer := &Answer{}
	// At the first time the program may have read what is there, or not.
	if t.Reload != "" {
		out, err := run(ctx, t.Timeout, t.Reload, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("reload command: %w", err)
		}
		if bytes.HasPrefix(bytes.TrimSpace(out), []byte(`{"services"`)) { // programs print all sorts of things
			answer = parseAnswer(out)
		}
	}
	t.loaded = sum
	return answer, nil
}

func (t *Template) render(s *State) ([]byte, error) {
	source, err := os.ReadFile(t.File)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	parsed, err := template.New(filepath.Base(t.File)).Funcs(functions(s)).Option("missingkey=error").Parse(string(source))
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, s); err != nil {
		return nil, fmt.Errorf("execute template: %w", err)
	}
	return out.Bytes(), nil
}

// replace writes the file beside the old one, has it checked, and takes it.
// Mode and owner stay.
func (t *Template) replace(ctx context.Context, text []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(t.Out); err == nil {
		mode = info.Mode().Perm()
	}
	return keptfile.WriteChecked(t.Out, text, mode, func(next string) error {
		if t.Check == "" {
			return nil
		}
		if _, err := run(ctx, t.Timeout, strings.ReplaceAll(t.Check, "{}", next), nil, nil); err != nil {
			return fmt.Errorf("check command: the file stays as it was: %w", err)
		}
		return nil
	})
}
