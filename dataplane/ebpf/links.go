package ebpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf/link"
)

// pinnedLink is what the kernel says of the link that is pinned at a path; nil
// if there is none.
func pinnedLink(pin string) (*link.Info, error) {
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

// detach detaches a program at once; without its pin alone, the kernel would
// take its time.
func detach(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open link %s: %w", pin, err)
	}
	if err := errors.Join(l.Detach(), os.Remove(pin), l.Close()); err != nil {
		return fmt.Errorf("detach program %s: %w", pin, err)
	}
	return nil
}
