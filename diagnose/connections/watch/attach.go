package watch

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// place is where a program is attached.
type place struct {
	program string
	index   int // of the interface; 0 for other places
}

// sides are where programs of packets go. Those behind the plane's are for traces only.
var sides = map[string]struct {
	attach ebpf.AttachType
	first  bool
}{
	"enters":   {ebpf.AttachTCXIngress, true},
	"entered":  {ebpf.AttachTCXIngress, false},
	"departs":  {ebpf.AttachTCXEgress, true},
	"departed": {ebpf.AttachTCXEgress, false},
}

// hooks are where programs of datagram sockets go.
var hooks = map[string]ebpf.AttachType{
	"connect4": ebpf.AttachCGroupInet4Connect, "connect6": ebpf.AttachCGroupInet6Connect,
	"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
}

// Follow attaches the programs wherever they aren't: interfaces come and go.
func (w *Watch) Follow() error {
	if err := w.attachSockets(); err != nil {
		return err
	}
	list, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	there := map[int]bool{}
	for _, one := range list {
		there[one.Index] = true
		for name, side := range sides {
			if w.port == 0 && !side.first {
				continue
			}
			if err := w.attach(place{name, one.Index}, func() (link.Link, error) {
				anchor := link.Tail()
				if side.first {
					anchor = link.Head()
				}
				return link.AttachTCX(link.TCXOptions{Interface: one.Index, Program: w.programs.Programs[name], Attach: side.attach, Anchor: anchor})
			}); err != nil && !errors.Is(err, unix.ENODEV) { // it went meanwhile
				return fmt.Errorf("interface %s: %w", one.Name, err)
			}
		}
	}
	for at, detach := range w.attached {
		if at.index != 0 && !there[at.index] {
			delete(w.attached, at)
			if err := detach(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Watch) attachSockets() error {
	if w.sockets != nil {
		return nil
	}
	if err := w.attach(place{program: "state"}, func() (link.Link, error) {
		return link.AttachTracing(link.TracingOptions{Program: w.programs.Programs["state"]})
	}); err != nil {
		return err
	}
	for name, hook := range hooks {
		if err := w.attach(place{program: name}, func() (link.Link, error) {
			return link.AttachCgroup(link.CgroupOptions{Path: w.cgroup, Attach: hook, Program: w.programs.Programs[name]})
		}); err != nil {
			return fmt.Errorf("cgroup %s: %w", w.cgroup, err)
		}
	}
	return nil
}

func (w *Watch) attach(at place, do func() (link.Link, error)) error {
	if w.attached[at] != nil {
		return nil
	}
	l, err := do()
	if err != nil {
		return err
	}
	w.attached[at] = l.Close
	return nil
}
