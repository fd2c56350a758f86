package tcfilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// First is the place of a program that sees packets before the data plane does: by tcx
// (Linux 6.6) before all others, or as a filter of the interface's clsact. It stays there
// when the process ends, and is found again by what is pinned (see pins), in the network
// namespace of the calling thread.
type First struct {
	Place
	Program string // its name, of any version
}

// Open opens the program that is there; nil if there is none, or one that an earlier
// version left without pins and that this process has no right to open.
func (f First) Open() (*ebpf.Program, error) {
	p, err := f.pins()
	if err != nil {
		return nil, err
	}
	id, err := p.linked(f.Index)
	if err != nil {
		return nil, err
	}
	if id != 0 {
		return p.program(id)
	}
	filter, err := f.Find()
	if err != nil {
		return nil, err
	}
	if filter != nil {
		return p.program(ebpf.ProgramID(filter.Id))
	}
	return f.unlinked()
}

// unlinked opens the program that an earlier version attached by tcx without a link.
func (f First) unlinked() (*ebpf.Program, error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: f.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, nil // the kernel has no tcx, or the interface is gone
	}
	for _, at := range found.Programs {
		p, err := openByID(at.ID)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		info, err := p.Info()
		if err == nil && info.Name == f.Program {
			return p, nil
		}
		if err := errors.Join(err, p.Close()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// openByID opens a program that isn't pinned. It takes CAP_SYS_ADMIN, which an agent in a pod
// doesn't have: nil without it, or if the program has gone meanwhile.
func openByID(id ebpf.ProgramID) (*ebpf.Program, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the program there is: %w", err)
	}
	return p, nil
}

// Put puts the program of a collection before all others, or in the place of an earlier one.
func (f First) Put(c *ebpf.Collection) error {
	p, err := f.pins()
	if err != nil {
		return err
	}
	program := c.Programs[f.Program]
	id, err := p.pin(program, c.Maps)
	if err != nil {
		return err
	}
	before, err := f.unlinked()
	if err != nil {
		return err
	}
	err = p.attach(f.Index, program)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		err = f.Attach(f.Prefix, program.FD())
	} else if err == nil {
		_, err = f.Detach() // where the kernel had no tcx before
	}
	if before != nil {
		err = errors.Join(err, f.detachUnlinked(before))
	}
	return errors.Join(err, p.keepOnly(id))
}

func (f First) detachUnlinked(p *ebpf.Program) error {
	err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: f.Index, Program: p, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		err = nil
	}
	return errors.Join(err, p.Close())
}

// Remove removes the program, however it is attached.
func (f First) Remove() (there bool, err error) {
	p, err := f.pins()
	if err != nil {
		return false, err
	}
	linked, err := p.detach(f.Index)
	if err != nil {
		return linked, err
	}
	filtered, err := f.Detach()
	if err != nil {
		return true, err
	}
	before, err := f.unlinked()
	if before != nil {
		err = f.detachUnlinked(before)
	}
	return linked || filtered || before != nil, err
}

// IsThere reports whether the program is there.
func (f First) IsThere() (bool, error) {
	p, err := f.pins()
	if err != nil {
		return false, err
	}
	if id, err := p.linked(f.Index); err != nil || id != 0 {
		return id != 0, err
	}
	if filter, err := f.Find(); err != nil || filter != nil {
		return filter != nil, err
	}
	before, err := f.unlinked()
	if before == nil {
		return false, err
	}
	return true, before.Close()
}

// FirstAt is the place of a program at an interface.
type FirstAt func(h *netlink.Handle, index int) First

// IsThere reports whether the program is at an interface of the calling thread's network
// namespace, as far as can be seen.
func (at FirstAt) IsThere(index int) bool {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}
	defer h.Close()
	there, err := at(h, index).IsThere()
	return there && err == nil
}

// Sweep removes the program from all interfaces but some, given by index, and names those
// where it was. It looks at the network namespace of the calling thread. What names the
// program's work in errors.
func (at FirstAt) Sweep(what string, stay func(index int) bool) ([]string, error) {
	found, err := Each(what, stay, func(h *netlink.Handle, index int) (bool, error) { return at(h, index).Remove() })
	return found, errors.Join(err, RemoveDead())
}

// Leftovers names the interfaces where the program is.
func (at FirstAt) Leftovers(what string) ([]string, error) {
	none := func(int) bool { return false }
	return Each(what, none, func(h *netlink.Handle, index int) (bool, error) { return at(h, index).IsThere() })
}
