package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// DamagedError says which file of a store is missing, truncated or damaged.
type DamagedError struct {
	File string
	Err  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s: %v", e.File, e.Err) }

// Unwrap returns the reason.
func (e *DamagedError) Unwrap() error { return e.Err }

// damage is what keeps a file from being read. A file that another program holds, or that may not be opened, is not
// damaged: who moved it away would lose it.
func damage(file string, err error) error {
	errno, _ := errors.AsType[syscall.Errno](err)
	if slices.Contains([]syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}, errno) {
		return fmt.Errorf("look at store: %w", err)
	}
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("look at store: another program has %s open: %w", file, err)
	}
	return &DamagedError{file, err}
}

// CheckFiles looks whether the store in dir can be gone on with, and changes nothing. A store whose log ends before
// its database would take writes and drop them: etcd doesn't apply what it has applied before.
func CheckFiles(dir string) error {
	database := filepath.Join(dir, "member", "snap", "db")
	applied, err := appliedIndex(database)
	if err != nil {
		return damage(database, err)
	}
	logDir := filepath.Join(dir, "member", "wal")
	last, err := lastLogged(logDir, filepath.Join(dir, "member", "snap"))
	if err != nil {
		return err
	}
	if last < applied {
		return &DamagedError{newest(logDir), fmt.Errorf("the log ends at entry %d, and the database holds %d: the end of the log is lost", last, applied)}
	}
	return nil
}

// appliedIndex is the last entry of the log that the database holds. A database that is damaged makes its library
// panic, or read beyond the file's end.
func appliedIndex(file string) (index uint64, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // else what is read beyond the end ends the process
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("read database: %v", reason)
		}
	}()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, fmt.Errorf("read database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("it ends after %d of %d bytes", info.Size(), tx.Size())
		}
		meta := tx.Bucket([]byte("meta"))
		if meta == nil {
			return nil // a crash in its first moment
		}
		if value := meta.Get([]byte("consistent_index")); len(value) == 8 {
			index = binary.BigEndian.Uint64(value)
		}
		return nil
	})
	return index, err
}

// lastLogged is the index of the log's last entry.
func lastLogged(logDir, snapDir string) (uint64, error) {
	quiet := zap.NewNop()
	snapshots, err := wal.ValidSnapshotEntries(quiet, logDir)
	if err != nil {
		return 0, damage(newest(logDir), fmt.Errorf("read log: %w", err))
	}
	begin, lost := newestIntact(snapDir, snapshots)
	if begin.GetIndex() == 0 && lost != nil { // of what was restored, the first one is a part
		return 0, lost
	}
	w, err := wal.OpenForRead(quiet, logDir, begin)
	switch {
	case err != nil && lost != nil: // the log doesn't go back so far
		return 0, lost
	case err != nil:
		return 0, damage(newest(logDir), fmt.Errorf("open log: %w", err))
	}
	_, _, entries, err := w.ReadAll()
	_ = w.Close() // it complains of a directory that it doesn't open for reading
	if err != nil {
		return 0, damage(newest(logDir), fmt.Errorf("read log: %w", err))
	}
	if len(entries) == 0 {
		return begin.GetIndex(), nil
	}
	return entries[len(entries)-1].GetIndex(), nil
}

// newestIntact is the newest snapshot that can be read, which is what etcd begins with; the zero one
// is the log's beginning. Lost is what is wrong with a newer one, nil if nothing is.
func newestIntact(snapDir string, snapshots []*walpb.Snapshot) (begin *walpb.Snapshot, lost error) {
	for _, s := range slices.Backward(snapshots) {
		if s.GetIndex() == 0 {
			break
		}
		file := filepath.Join(snapDir, fmt.Sprintf("%016x-%016x.snap", s.GetTerm(), s.GetIndex()))
		_, err := snap.Read(zap.NewNop(), file)
		if err == nil {
			return s, lost
		}
		if lost == nil {
			lost = damage(file, fmt.Errorf("read what the log begins with: %w", err))
		}
	}
	return &walpb.Snapshot{}, lost
}

// newest is the log's last file, and the log's directory if it has none.
func newest(logDir string) string {
	files, err := filepath.Glob(filepath.Join(logDir, "*.wal"))
	if err != nil || len(files) == 0 {
		return logDir
	}
	return slices.Max(files)
}
