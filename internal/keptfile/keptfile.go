// Package keptfile writes files that a program keeps for its next start, so that a crash
// or a full disk never leaves half of one behind, and so that a damaged one is noticed.
//
//   - Write replaces a file in one step: keys, certificates, kubeconfigs
//   - Save and Load add a checksum: for what this program alone reads
//   - SetAside moves a damaged file out of the way
package keptfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Write replaces a file at once, with the given mode from the start: no reader ever
// sees half of it, a secret is never readable for others, and after a power cut the
// file is the old one or the new one.
func Write(name string, data []byte, mode os.FileMode) error {
	return write(name, data, func(next *os.File) error { return next.Chmod(mode) })
}

// WriteChecked is Write for a file that something has to accept first: check is given the
// name of a file beside it with the content. The file stays as it was after an error.
func WriteChecked(name string, data []byte, mode os.FileMode, check func(next string) error) error {
	return write(name, data, func(next *os.File) error {
		return cmp.Or(next.Chmod(mode), check(next.Name()))
	})
}

// WriteFor is Write for a file that is another user's and group's from the start; -1
// leaves either as it is.
func WriteFor(name string, data []byte, mode os.FileMode, uid, gid int) error {
	return write(name, data, func(next *os.File) error {
		return errors.Join(next.Chmod(mode), next.Chown(uid, gid))
	})
}

// write replaces a file by one that is prepared after it was written.
func write(name string, data []byte, prepare func(next *os.File) error) error {
	dir := filepath.Dir(name)
	tmp, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = prepare(tmp)
	}
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(tmp.Name()))
	}
	return SyncDir(dir)
}

// SyncDir makes the names in a directory last, whatever happens.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// checksum begins the last line of a file that Save wrote.
const checksum = "\n# sha256:"

// Save is Write with a checksum.
func Save(name string, data []byte, mode os.FileMode) error {
	return Write(name, append(append(bytes.Clone(data), checksum...), sum(data)+"\n"...), mode)
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// DamagedError is a file whose content isn't what was written.
type DamagedError struct {
	Name string
	Why  string
}

func (e *DamagedError) Error() string { return e.Name + " is damaged: " + e.Why }

// Load reads a file that Save wrote, or that was written before files had checksums:
// whoever reads it sees then whether it makes sense. The error of a damaged one is a
// DamagedError.
func Load(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	content, line, found := bytes.Cut(data, []byte(checksum))
	if !found {
		return data, nil
	}
	if string(line) != sum(content)+"\n" {
		return nil, &DamagedError{name, "its checksum is another"}
	}
	return content, nil
}

// damaged is added to the name of a file that was moved aside.
const damaged = ".damaged"

// SetAside renames a damaged file, so that the next start finds none, and says so once.
// One that was set aside before goes.
func SetAside(name string, why error, log *slog.Logger) error {
	if err := os.Rename(name, name+damaged); err != nil {
		return fmt.Errorf("set %s aside: %w", name, err)
	}
	log.Warn("a file is damaged, and was moved aside; going on without it", "file", name, "moved-to", name+damaged, "error", why)
	return nil
}
