package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairway-net/fairway/internal/keptfile"
)

// record is what was made, by path without the root: the hash of a file's
// content, or where a link leads.
type record struct {
	Role    string            `json:"role"`
	Files   map[string]string `json:"files"`
	Links   map[string]string `json:"links"`
	Folders []string          `json:"folders"` // that weren't there, outermost first
	User    string            `json:"user,omitempty"`
	Gateway bool              `json:"gateway,omitempty"` // beside the role

	root string
}

// openRecord reads what an earlier installation made; nothing if there was none.
func openRecord(root string) (*record, error) {
	r := &record{Files: map[string]string{}, Links: map[string]string{}, root: root}
	text, err := os.ReadFile(r.at(recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was installed: %w", err)
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.at(recordFile), err)
	}
	return r, nil
}

func (r *record) at(path string) string { return filepath.Join("/", r.root, path) }

func (r *record) exists(path string) bool {
	_, err := os.Lstat(r.at(path))
	return err == nil
}

func (r *record) save() error {
	if err := r.folder(filepath.Dir(recordFile)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write down what was installed: %w", err)
	}
	return keptfile.Write(r.at(recordFile), append(text, '\n'), 0o644)
}

// folder makes a folder and those above it, and notes which weren't there.
func (r *record) folder(path string) error {
	if r.exists(path) {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := r.folder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(r.at(path), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	r.Folders = append(r.Folders, path)
	return nil
}

// write puts a file in place at once: a program that runs goes on with the old
// one. What is there and wasn't made by an installation is refused.
func (r *record) write(path string, content []byte, mode fs.FileMode) error {
	if _, ours := r.Files[path]; !ours && r.exists(path) {
		there, err := os.ReadFile(r.at(path))
		if err != nil || hash(there) != hash(content) {
			return fmt.Errorf("%s is there already, and fairway install hasn't made it: move it away first", r.at(path))
		}
		return nil // the same, and not ours to remove
	}
	if err := r.folder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := keptfile.Write(r.at(path), content, mode); err != nil {
		return err
	}
	r.Files[path] = hash(content)
	return nil
}

// link makes a link, unless something has the name already.
func (r *record) link(path, target string) error {
	if r.exists(path) {
		return nil
	}
	if err := r.folder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Symlink(target, r.at(path)); err != nil {
		return fmt.Errorf("make link: %w", err)
	}
	r.Links[path] = target
	return nil
}

// removeAll removes what is still as it was made, and says what isn't. What is
// to be kept stays, and is still on record.
func (r *record) removeAll(out io.Writer, keep ...string) error {
	for path, target := range r.Links {
		if now, err := os.Readlink(r.at(path)); err == nil && now == target {
			if err := os.Remove(r.at(path)); err != nil {
				return fmt.Errorf("remove link: %w", err)
			}
		}
		delete(r.Links, path)
	}
	for path, made := range r.Files {
		if slices.Contains(keep, path) {
			continue
		}
		if err := r.remove(path, made, len(keep) == 0, out); err != nil {
			return err
		}
		delete(r.Files, path)
	}
	if len(keep) > 0 {
		return r.save()
	}
	if err := os.Remove(r.at(recordFile)); err != nil {
		return fmt.Errorf("remove file: %w", err)
	}
	for _, path := range slices.Backward(r.Folders) {
		_ = os.Remove(r.at(path)) // one that others use by now isn't empty
	}
	return nil
}

// remove removes a file. One of settings goes with everything, whoever changed it.
func (r *record) remove(path, made string, everything bool, out io.Writer) error {
	now, err := os.ReadFile(r.at(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove file: %w", err)
	}
	if hash(now) != made && (!everything || filepath.Dir(path) != settings) {
		fmt.Fprintf(out, "kept: %s, which was changed since\n", r.at(path))
		return nil
	}
	if err := os.Remove(r.at(path)); err != nil {
		return fmt.Errorf("remove file: %w", err)
	}
	return nil
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
