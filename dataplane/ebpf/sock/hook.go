package sock

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
)

// running reports whether programs of any version are attached.
func (p *Path) running(dir string) (bool, error) {
	links, err := pins.Links(dir, "*-*")
	if err != nil {
		return false, err
	}
	return len(links) > 0, nil
}

// missing lists the hooks at which the programs of this version aren't.
func (p *Path) missing(dir string) ([]string, error) {
	id, err := cgroupID(p.cgroup)
	if err != nil {
		return nil, err
	}
	var missing []string
	for hook := range Hooks {
		at, err := pins.CgroupOf(p.pin(dir, hook))
		if err != nil {
			return nil, err
		}
		if at != id {
			missing = append(missing, hook)
		}
	}
	return missing, nil
}

// cgroupID is the number that links know a cgroup by: its inode.
func cgroupID(dir string) (uint64, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(dir, &stat); err != nil {
		return 0, fmt.Errorf("identify cgroup %s: %w", dir, err)
	}
	return stat.Ino, nil
}

// attachHook puts a program in the place of the one of another version, or adds
// it.
func (p *Path) attachHook(dir, hook string, program *ebpf.Program) error {
	pin, next := p.pin(dir, hook), p.pin(dir, hook)+unfinished
	if err := p.attachUnfinished(next, hook, program); err != nil {
		return err
	}
	if err := p.Steps.At("socket program pinned"); err != nil {
		return err
	}
	others, err := pins.Links(dir, hook+"-*")
	if err != nil {
		return err
	}
	// What one of the two has translated, the other takes for no Service traffic.
	for _, old := range others {
		if old == next {
			continue
		}
		if err := pins.Detach(old); err != nil {
			return err
		}
	}
	if err := p.Steps.At("other socket programs detached"); err != nil {
		return err
	}
	if err := os.Rename(next, pin); err != nil {
		return fmt.Errorf("pin program %s: %w", hook, err)
	}
	return p.Steps.At("socket program attached")
}

// unfinished is behind the name of a link until those that it replaces are
// detached.
const unfinished = "-new"

// attachUnfinished attaches and pins a program, unless an earlier process did and
// was killed then.
func (p *Path) attachUnfinished(pin, hook string, program *ebpf.Program) error {
	id, err := cgroupID(p.cgroup)
	if err != nil {
		return err
	}
	at, err := pins.CgroupOf(pin)
	if err != nil || at == id {
		return err
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) { // of another cgroup, or of none any more
		return fmt.Errorf("remove link %s: %w", pin, err)
	}
	own, err := link.AttachCgroup(link.CgroupOptions{Path: p.cgroup, Attach: Hooks[hook], Program: program})
	if err != nil {
		return fmt.Errorf("attach program %s to cgroup %s: %w", hook, p.cgroup, err)
	}
	if err := own.Pin(pin); err != nil {
		return errors.Join(fmt.Errorf("pin program %s: %w", hook, err), own.Close())
	}
	return own.Close()
}
