package kubeproxy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must have been left alone before it is read again:
// editors and kubelets write it in several steps.
const settle = 100 * time.Millisecond

// lookAgain bounds how long a change goes unseen where the file system doesn't
// tell of it.
const lookAgain = time.Minute

// Watch calls changed with the path's new content whenever it isn't what it was,
// until ctx is done. It sees a file that is written or replaced, and a ConfigMap
// volume's whose directory of data is swapped. A file that can't be read is
// logged and, like one that is gone for a moment, waited for.
func Watch(ctx context.Context, path string, last []byte, log *slog.Logger, changed func([]byte)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch configuration: %w", err)
	}
	defer watcher.Close() //nolint:errcheck // nothing follows
	// The directory, not the file: a file that is replaced takes its watch along.
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watch configuration: %w", err)
	}
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	settled := time.After(settle) // it may have changed before the watch began
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
			settled = time.After(settle)
			continue
		case err := <-watcher.Errors:
			log.Warn("watching the configuration file", "file", path, "error", err)
		case <-settled:
			settled = nil
		case <-ticker.C:
		}
		data, err := os.ReadFile(path)
		if err != nil {
			log.Error("the configuration file can't be read; keeping the old configuration", "file", path, "error", err)
			continue
		}
		if !bytes.Equal(data, last) {
			last = data
			changed(data)
		}
	}
}
