package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
)

// LinkInfo is what the kernel says of the link that is pinned at a path; nil
// if there is none.
func LinkInfo(pin string) (*link.Info, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open link %s: %w", pin, err)
	}
	info, err := l.Info()
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, fmt.Errorf("read link %s: %w", pin, err)
	}
	return info, nil
}

// Detach detaches a program at once; without its pin alone, the kernel would
// take its time.
func Detach(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open link %s: %w", pin, err)
	}
	if err := errors.Join(l.Detach(), os.Remove(pin), l.Close()); err != nil {
		return fmt.Errorf("detach program %s: %w", pin, err)
	}
	return nil
}

// CgroupOf is the cgroup that a pinned link leads to; 0 if there is none.
func CgroupOf(pin string) (uint64, error) {
	info, err := LinkInfo(pin)
	if err != nil || info == nil || info.Cgroup() == nil {
		return 0, err
	}
	return info.Cgroup().CgroupId, nil
}

// leadsSomewhere reports whether what a pinned link leads to, a cgroup or an interface, is
// still there.
func leadsSomewhere(pin string) (bool, error) {
	info, err := LinkInfo(pin)
	if err != nil || info == nil {
		return false, err
	}
	if at := info.TCX(); at != nil {
		return at.Ifindex != 0, nil
	}
	at := info.Cgroup()
	return at != nil && at.CgroupId != 0, nil
}

// Links lists the pins in a directory whose names match a pattern of filepath.Match.
func Links(dir, pattern string) ([]string, error) {
	list, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return list, nil
}
