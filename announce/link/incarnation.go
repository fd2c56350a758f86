package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// Incarnations numbers the processes that speak for a node. A number is higher than all before
// it, whatever the clock does meanwhile: others take in no frame with a lower one.
type Incarnations struct {
	mu   sync.Mutex
	file string
	last uint64
}

// NewIncarnations goes on after the number that a file has. The file is "" if nothing is to be
// kept; a number that can't be kept counts all the same.
func NewIncarnations(file string) (*Incarnations, error) {
	i := &Incarnations{file: file}
	if file == "" {
		return i, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return i, nil
	}
	if err == nil {
		i.last, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	if err != nil {
		return i, fmt.Errorf("read the number of this node's last announcer: %w", err)
	}
	return i, nil
}

// Next is the next number: nanoseconds since 1970, or one more than the last one.
func (i *Incarnations) Next(now time.Time) (uint64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = max(i.last+1, uint64(max(now.UnixNano(), 0)))
	if i.file == "" {
		return i.last, nil
	}
	if err := i.keep(); err != nil {
		return i.last, fmt.Errorf("keep the number of this node's announcer: %w", err)
	}
	return i.last, nil
}

func (i *Incarnations) keep() error {
	if err := os.MkdirAll(filepath.Dir(i.file), 0o755); err != nil {
		return err
	}
	return keptfile.Write(i.file, []byte(strconv.FormatUint(i.last, 10)+"\n"), 0o600)
}
