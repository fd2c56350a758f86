package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// kernelFiles are a kernel and its modules, unpacked from their package.
type kernelFiles struct {
	image   string // vmlinuz
	modules string // lib/modules/RELEASE
	release string
}

// cacheDir is where the kernel and the base of the initramfs are kept.
func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	dir := filepath.Join(user, "fairway", "vm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache directory: %w", err)
	}
	return dir, nil
}

// kernel finds the kernel of a Debian release in the cache, or downloads and
// unpacks its package. Once there is one, no network is needed.
func kernel(cache, release string) (kernelFiles, error) {
	if runtime.GOARCH != "amd64" {
		return kernelFiles{}, fmt.Errorf("the virtual machine's kernel is for amd64 only, this is %s", runtime.GOARCH)
	}
	root := filepath.Join(cache, "kernel")
	if release != "" {
		root += "-" + release
	}
	k, err := findKernel(root)
	if errors.Is(err, fs.ErrNotExist) {
		if err := fetchKernel(cache, root, release); err != nil {
			return k, fmt.Errorf("fetch a kernel: %w", err)
		}
		k, err = findKernel(root)
	}
	return k, err
}

func findKernel(root string) (kernelFiles, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil {
		return kernelFiles{}, err
	}
	if len(images) == 0 {
		return kernelFiles{}, fmt.Errorf("find kernel in %s: %w", root, fs.ErrNotExist)
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	return kernelFiles{image: images[0], modules: filepath.Join(root, "lib", "modules", release), release: release}, nil
}

// fetchKernel downloads and unpacks into a directory beside root and gives it
// its name when it is complete.
func fetchKernel(cache, root, release string) error {
	dir, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := download(dir, release); err != nil {
		return fmt.Errorf("%w (without network, put the unpacked package into %s)", err, root)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download left %d packages: %w", len(packages), err)
	}
	unpacked := filepath.Join(dir, "unpacked")
	if err := command(dir, "dpkg", "-x", packages[0], unpacked); err != nil {
		return err
	}
	if err := mergeUsr(unpacked); err != nil {
		return err
	}
	k, err := findKernel(unpacked)
	if err != nil {
		return err
	}
	if err := command(dir, "depmod", "-b", unpacked, k.release); err != nil {
		return err
	}
	err = os.Rename(unpacked, root)
	if errors.Is(err, fs.ErrExist) {
		return nil // somebody else was as fast
	}
	return err
}

// mergeUsr has lib lead to usr/lib where the package has its modules there, as since
// Debian 13: depmod looks in lib.
func mergeUsr(unpacked string) error {
	if _, err := os.Stat(filepath.Join(unpacked, "lib")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink("usr/lib", filepath.Join(unpacked, "lib")); err != nil {
		return fmt.Errorf("link lib to usr/lib: %w", err)
	}
	return nil
}
