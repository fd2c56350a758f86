package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// SnapshotPath is where administrators read everything that is stored.
const SnapshotPath = "/fairway/snapshot"

const (
	snapshotPrefix = "fairway-"
	snapshotSuffix = ".db"
	// snapshotTime orders names of snapshots by age.
	snapshotTime = "20060102T150405Z"
)

// SnapshotDir is where a server with the given data directory keeps the
// snapshots that it takes by itself.
func SnapshotDir(dataDir string) string { return filepath.Join(dataDir, "snapshots") }

// serveSnapshot writes a snapshot to the client. If it fails after its
// beginning, the connection breaks, so that nobody takes it for a whole one.
func (s *Server) serveSnapshot(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := s.backend.Snapshot(req.Context(), w); err != nil {
		slog.Warn("a snapshot could not be sent", "error", err)
		panic(http.ErrAbortHandler)
	}
}

// takeSnapshots takes one at every interval, and keeps the latest.
func (s *Server) takeSnapshots(ctx context.Context) {
	tick := time.NewTicker(s.config.SnapshotInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.backend.Full() {
			continue
		}
		if err := s.takeSnapshot(ctx, time.Now()); err != nil && ctx.Err() == nil {
			slog.Warn("a scheduled snapshot could not be taken", "error", err, "retry-in", s.config.SnapshotInterval)
		}
	}
}

// takeSnapshot takes one that is named for a time.
func (s *Server) takeSnapshot(ctx context.Context, now time.Time) error {
	dir := SnapshotDir(s.config.DataDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory of snapshots: %w", err)
	}
	name := snapshotPrefix + now.UTC().Format(snapshotTime) + snapshotSuffix
	err := WriteSnapshot(filepath.Join(dir, name), func(w io.Writer) error { return s.backend.Snapshot(ctx, w) })
	if err != nil {
		return err
	}
	return dropSnapshots(dir, s.config.SnapshotRetention)
}

// WriteSnapshot makes a file of a snapshot. It has its name when it is whole.
func WriteSnapshot(name string, write func(io.Writer) error) error {
	part := name + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", errors.Join(err, os.Remove(part)))
	}
	return nil
}

// dropSnapshots deletes all but the latest.
func dropSnapshots(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), snapshotPrefix) && strings.HasSuffix(e.Name(), snapshotSuffix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names[:max(0, len(names)-keep)] {
		errs = append(errs, os.Remove(filepath.Join(dir, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete old snapshots: %w", err)
	}
	return nil
}
