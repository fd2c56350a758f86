package handoff

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

const (
	filterPriority = 0xf9f // before those that answer ARP, and those of ebpf mode
	filterName     = "fairway-handoff"
	programName    = "handoff" // bpf/handoff.c
)

// site is where the program of an interface is: by tcx (Linux 6.6) before all others, or
// as a filter of the interface's clsact. It stays there when the process ends.
type site struct{ tcfilter.Place }

func siteOf(h *netlink.Handle, index int) site {
	return site{tcfilter.Place{Netlink: h, Index: index, Side: tcfilter.Ingress, Priority: filterPriority, Prefix: filterName}}
}

// find opens the program that is there, and says whether it is by tcx; nil if there is none.
func (s site) find() (p *ebpf.Program, byTCX bool, err error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: s.Index, Attach: ebpf.AttachTCXIngress})
	if err == nil { // else the kernel has no tcx, or the interface is gone
		for _, at := range found.Programs {
			if p, err := openNamed(at.ID); p != nil || err != nil {
				return p, true, err
			}
		}
	}
	f, err := s.Find()
	if err != nil || f == nil {
		return nil, false, err
	}
	p, err = ebpf.NewProgramFromID(ebpf.ProgramID(f.Id))
	if err != nil {
		return nil, false, fmt.Errorf("open the program there is: %w", err)
	}
	return p, false, nil
}

// openNamed opens a program if it is this one, of any version.
func openNamed(id ebpf.ProgramID) (*ebpf.Program, error) {
	p, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // it has gone meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("open the program there is: %w", err)
	}
	info, err := p.Info()
	if err == nil && info.Name == programName {
		return p, nil
	}
	return nil, errors.Join(err, p.Close())
}

// attach puts the program before all others, or in the place of an earlier one.
func (s site) attach(program *ebpf.Program) error {
	before, byTCX, err := s.find()
	if err != nil {
		return err
	}
	options := link.RawAttachProgramOptions{Target: s.Index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()}
	if before != nil {
		defer func() { _ = before.Close() }()
		if !byTCX {
			return s.Attach(filterName, program.FD())
		}
		options.Anchor = link.ReplaceProgram(before)
	}
	err = link.RawAttachProgram(options)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		return s.Attach(filterName, program.FD())
	}
	return err
}

// detach removes the program, wherever it is.
func (s site) detach() (there bool, err error) {
	p, byTCX, err := s.find()
	if err != nil || p == nil {
		return false, err
	}
	if byTCX {
		err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: s.Index, Program: p, Attach: ebpf.AttachTCXIngress})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
			err = nil
		}
	} else {
		_, err = s.Detach()
	}
	return true, errors.Join(err, p.Close())
}

// Sweep ends leading connections elsewhere on all interfaces but some, given by index, and
// names those where a program was. It looks at the network namespace of the calling thread.
func Sweep(stay func(index int) bool) ([]string, error) { return sweep(stay, site.detach) }

// Leftovers names the interfaces on which a program leads connections elsewhere.
func Leftovers() ([]string, error) {
	return sweep(func(int) bool { return false }, func(s site) (bool, error) {
		p, _, err := s.find()
		if p == nil {
			return false, err
		}
		return true, errors.Join(err, p.Close())
	})
}

func sweep(stay func(index int) bool, do func(site) (bool, error)) ([]string, error) {
	return tcfilter.Each("connections led elsewhere", stay, func(h *netlink.Handle, index int) (bool, error) { return do(siteOf(h, index)) })
}
