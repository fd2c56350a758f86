package vm

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// archive is an initramfs in the making: a cpio archive in the format "newc"
// (Linux, Documentation/driver-api/early-userspace/buffer-format.rst). The
// kernel unpacks several of them after each other, so a test's files come
// behind those that are always the same.
type archive struct {
	entries map[string]entry // by path, absolute
}

// entry is a directory, a symbolic link, or a file, here or on the host.
type entry struct {
	mode   os.FileMode
	link   string // of a symbolic link: its target
	host   string // of a file: where its content is on the host
	inline []byte // of a file: its content, unless host is set
}

func newArchive() *archive { return &archive{entries: map[string]entry{}} }

// put adds an entry and the directories above it.
func (a *archive) put(at string, e entry) {
	at = path.Clean("/" + at)
	if dir := path.Dir(at); dir != at {
		if _, ok := a.entries[dir]; !ok {
			a.put(dir, entry{mode: os.ModeDir | 0o755})
		}
	}
	if at != "/" {
		a.entries[at] = e
	}
}

// addFile adds a file of the host under its own path. Where that leads through
// symbolic links, these are added, too.
func (a *archive) addFile(host string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(host))
	if err != nil {
		return fmt.Errorf("add %s to the machine: %w", host, err)
	}
	at := filepath.Join(dir, filepath.Base(host))
	if _, ok := a.entries[at]; ok {
		return nil
	}
	info, err := os.Lstat(at)
	if err != nil {
		return fmt.Errorf("add %s to the machine: %w", host, err)
	}
	if info.Mode()&os.ModeSymlink == 0 {
		a.put(at, entry{mode: info.Mode().Perm(), host: at})
		return nil
	}
	target, err := os.Readlink(at)
	if err != nil {
		return fmt.Errorf("add %s to the machine: %w", host, err)
	}
	a.put(at, entry{mode: os.ModeSymlink | 0o777, link: target})
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	return a.addFile(target)
}

// addTree adds a directory of the host, with all that's in it, at a path.
func (a *archive) addTree(host, at string, wanted func(rel string) bool) error {
	return filepath.WalkDir(host, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(host, p)
		if err != nil || !d.Type().IsRegular() || !wanted(rel) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		a.put(path.Join(at, filepath.ToSlash(rel)), entry{mode: info.Mode().Perm(), host: p})
		return nil
	})
}

// writeTo writes the archive, sorted by path so that directories come first.
func (a *archive) writeTo(w io.Writer) error {
	paths := make([]string, 0, len(a.entries))
	for p := range a.entries {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for i, p := range paths {
		if err := writeEntry(w, i+1, strings.TrimPrefix(p, "/"), a.entries[p]); err != nil {
			return fmt.Errorf("pack %s: %w", p, err)
		}
	}
	return writeHeader(w, 0, "TRAILER!!!", 0, 0)
}

func writeEntry(w io.Writer, inode int, name string, e entry) error {
	const directory, link, file = 0o040000, 0o120000, 0o100000 // linux/stat.h
	perm := int(e.mode.Perm())
	switch {
	case e.mode.IsDir():
		return writeHeader(w, inode, name, directory|perm, 0)
	case e.mode&os.ModeSymlink != 0:
		e.inline = []byte(e.link)
		return writeContent(w, inode, name, link|perm, int64(len(e.link)), strings.NewReader(e.link))
	case e.host == "":
		return writeContent(w, inode, name, file|perm, int64(len(e.inline)), strings.NewReader(string(e.inline)))
	}
	f, err := os.Open(e.host)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return writeContent(w, inode, name, file|perm, info.Size(), f)
}

func writeContent(w io.Writer, inode int, name string, mode int, size int64, content io.Reader) error {
	if err := writeHeader(w, inode, name, mode, size); err != nil {
		return err
	}
	if _, err := io.CopyN(w, content, size); err != nil {
		return err
	}
	return pad(w, size)
}

// writeHeader writes the fields: inode, mode, user, group, links, time, size,
// device (4), length of the name, checksum.
func writeHeader(w io.Writer, inode int, name string, mode int, size int64) error {
	const headerSize = 110
	_, err := fmt.Fprintf(w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	if err != nil {
		return err
	}
	return pad(w, int64(headerSize+len(name)+1))
}

// pad fills up to a multiple of four bytes.
func pad(w io.Writer, size int64) error {
	_, err := w.Write(make([]byte, (4-size%4)%4))
	return err
}
