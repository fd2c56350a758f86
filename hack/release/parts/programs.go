package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// copyPrograms copies iptables, in both variants, and modprobe from the root of unpacked packages into a
// folder: what deploy/collect-programs does in an image of the same architecture, here for any.
func copyPrograms(root, folder string) error {
	c := collector{root: root, folder: folder, done: map[string]bool{}}
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "run", "var/lib", "proc", "sys", "dev", "usr/lib/modules"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			return err
		}
	}
	tmp := filepath.Join(folder, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o755), os.Chmod(tmp, 0o777|fs.ModeSticky)); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		c.link("usr/"+dir, dir)
	}
	c.program("sbin/xtables-nft-multi", "usr/sbin/xtables-nft-multi")
	c.program("sbin/xtables-legacy-multi", "usr/sbin/xtables-legacy-multi")
	c.program("bin/kmod", "usr/bin/kmod")
	c.link("../bin/kmod", "usr/sbin/modprobe")
	extensions, err := filepath.Glob(filepath.Join(root, "usr/lib/*/xtables/*.so"))
	if err != nil {
		return err
	}
	if len(extensions) == 0 {
		return fmt.Errorf("%s has no extensions of iptables", root)
	}
	for _, file := range extensions {
		at, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if to, err := os.Readlink(file); err == nil { // other names of one
			c.link(to, at)
			continue
		}
		c.program(at, at)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, command := range []string{"", "-save", "-restore"} {
			c.link("xtables-nft-multi", "usr/sbin/"+family+"-nft"+command)
			c.link("xtables-legacy-multi", "usr/sbin/"+family+"-legacy"+command)
			c.link(family+"-nft"+command, "usr/sbin/"+family+command)
		}
	}
	return errors.Join(c.failed...)
}

// collector copies programs with the libraries that they link.
type collector struct {
	root, folder string
	done         map[string]bool // files of the folder
	failed       []error
}

// program copies a file of the root, in its folder or below usr, with its libraries.
func (c *collector) program(from, to string) {
	if c.done[to] {
		return
	}
	c.done[to] = true
	file, err := c.find(from)
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(filepath.Join(c.folder, to)), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(c.folder, to), text, 0o755) //nolint:gosec // a program
	}
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	c.libraries(file)
}

// find is a file's path, which may be a link, in the root: Debian's packages have some in /lib and some in /usr/lib.
func (c *collector) find(name string) (string, error) {
	short := strings.TrimPrefix(name, "usr/")
	for _, at := range []string{short, "usr/" + short} {
		file, err := filepath.EvalSymlinks(filepath.Join(c.root, at))
		if err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s isn't in %s", name, c.root)
}

// libraries copies what a file links, and the loader that starts it.
func (c *collector) libraries(file string) {
	f, err := elf.Open(file)
	if err != nil {
		c.failed = append(c.failed, fmt.Errorf("read %s: %w", file, err))
		return
	}
	defer f.Close() //nolint:errcheck // only read
	names, err := f.ImportedLibraries()
	if err != nil {
		c.failed = append(c.failed, fmt.Errorf("read %s: %w", file, err))
	}
	for _, name := range names {
		at := c.library(name)
		if at == "" {
			c.failed = append(c.failed, fmt.Errorf("%s links %s, which isn't in %s", file, name, c.root))
			continue
		}
		c.program(at, "usr/"+strings.TrimPrefix(at, "usr/"))
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			c.failed = append(c.failed, fmt.Errorf("read %s: %w", file, err))
			continue
		}
		at := strings.Trim(string(text), "/\x00")
		c.program(at, "usr/"+strings.TrimPrefix(at, "usr/"))
	}
}

// library is the path of a library in the root; "" if it isn't there.
func (c *collector) library(name string) string {
	for _, pattern := range []string{"lib/*/", "usr/lib/*/", "lib64/", "lib/"} {
		found, err := filepath.Glob(filepath.Join(c.root, pattern, name))
		if err == nil && len(found) > 0 {
			at, err := filepath.Rel(c.root, found[0])
			if err == nil {
				return at
			}
		}
	}
	return ""
}

// link makes a link in the folder.
func (c *collector) link(to, name string) {
	at := filepath.Join(c.folder, name)
	if err := os.MkdirAll(path.Dir(at), 0o755); err != nil {
		c.failed = append(c.failed, err)
		return
	}
	if err := os.Symlink(to, at); err != nil {
		c.failed = append(c.failed, err)
	}
}
