package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// DefaultFolder is where files say what a machine publishes.
const DefaultFolder = "/etc/fairway/publish.d"

const (
	// settle is how long the folder must be quiet before it is read.
	settle = 50 * time.Millisecond
	// absent is how often a folder is looked for that isn't there.
	absent = 2 * time.Second
	// unasked is how often the folder is read though nothing is said to have
	// changed: mounts and links can hide changes.
	unasked = time.Minute
)

// ReadFolder reads the files *.yaml and *.yml of a folder, in the order of their
// names. The entries that make sense are returned beside the problems of the
// others, by file. A folder that isn't there has none of either.
func ReadFolder(folder string) (entries []Entry, problems map[string]error, err error) {
	files, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read what is published: %w", err)
	}
	problems = map[string]error{}
	for _, f := range files {
		if ext := filepath.Ext(f.Name()); f.IsDir() || strings.HasPrefix(f.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		data, trusted, err := readOwned(folder, f.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went meanwhile
		}
		if err != nil {
			problems[f.Name()] = fmt.Errorf("read what is published: %w", err)
			continue
		}
		list, err := Parse(f.Name(), data)
		if err != nil {
			problems[f.Name()] = err
		}
		for _, e := range list {
			if e.Check != nil && !e.Check.Remote() && trusted != nil {
				problems[f.Name()] = errors.Join(problems[f.Name()], fmt.Errorf("%s: check %s: %w", e.Source, e.Check.Kind, trusted))
				continue
			}
			if i := slices.IndexFunc(entries, e.clashes); i >= 0 {
				problems[f.Name()] = errors.Join(problems[f.Name()],
					fmt.Errorf("%s: port %d/%s of %s is published by %s already", e.Source, e.Port, e.Protocol, e.Service, entries[i].Source))
				continue
			}
			entries = append(entries, e)
		}
	}
	return entries, problems, nil
}

// readOwned reads a file. trusted is nil if only root, or whom the agent runs as, can
// have written it: a check of kind exec runs what it says with the agent's rights.
func readOwned(folder, name string) (data []byte, trusted, err error) {
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if data, err = io.ReadAll(f); err != nil {
		return nil, nil, err
	}
	file, err := f.Stat() // of what was read, wherever a link leads by now
	if err != nil {
		return nil, nil, err
	}
	within, err := os.Stat(folder)
	if err != nil {
		return nil, nil, err
	}
	return data, errors.Join(ownedByRoot(file), ownedByRoot(within)), nil
}

// ownedByRoot returns an error if others than root, or than whom the agent runs as,
// may write a file or folder.
func ownedByRoot(i fs.FileInfo) error {
	s, ok := i.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("who owns %s isn't known", i.Name())
	case s.Uid != 0 && int(s.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: only files and folders of root may say what is run (chown root)", i.Name(), s.Uid)
	case i.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others than its owner may write %s, which has mode %#o: only files and folders that nobody else may write may say what is run (chmod go-w)", i.Name(), i.Mode().Perm())
	}
	return nil
}

// clashes reports whether two entries would publish the same endpoint.
func (e *Entry) clashes(o Entry) bool {
	return e.Service == o.Service && e.Port == o.Port && e.Protocol == o.Protocol && e.PortName == o.PortName
}

// follow calls changed at once and whenever the folder may have changed, until ctx is done.
func follow(ctx context.Context, folder string, log *slog.Logger, changed func()) {
	for ctx.Err() == nil {
		changed()
		err := watch(ctx, folder, changed)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the folder can't be watched; reading it periodically", "folder", folder, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(absent):
		}
	}
}

// watch returns when the folder has gone or can't be watched.
func watch(ctx context.Context, folder string, changed func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(folder); err != nil {
		return fmt.Errorf("watch %s: %w", folder, err)
	}
	changed() // what came before the watch
	quiet := time.NewTimer(unasked)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", folder, err)
		case event := <-watcher.Events:
			if event.Name == folder && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return nil
			}
			quiet.Reset(settle)
		case <-quiet.C:
			changed()
			quiet.Reset(unasked)
		}
	}
}
