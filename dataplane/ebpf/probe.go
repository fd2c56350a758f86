package ebpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/kernel"
)

// needs are what the programs ask of a kernel.
type needs struct {
	maps     map[ebpf.MapType]bool
	programs map[ebpf.ProgramType]bool
	helpers  map[helper]bool
}

// helper is a function of the kernel's that programs of a type call.
type helper struct {
	in   ebpf.ProgramType
	call asm.BuiltinFunc
}

// rights are what loading programs takes.
const rights = "the right to load eBPF programs (CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN)"

// firstKernel is the earliest Linux that has all of it.
const firstKernel = "5.10"

// needsOf reads off compiled programs what they need.
func needsOf(specs ...*ebpf.CollectionSpec) needs {
	n := needs{map[ebpf.MapType]bool{}, map[ebpf.ProgramType]bool{}, map[helper]bool{}}
	for _, spec := range specs {
		for _, m := range spec.Maps {
			n.maps[m.Type] = true
		}
		for _, p := range spec.Programs {
			if p.Type == ebpf.XDP {
				continue // that of drivers, which goes where it can
			}
			n.programs[p.Type] = true
			for _, i := range p.Instructions {
				if i.IsBuiltinCall() {
					n.helpers[helper{p.Type, asm.BuiltinFunc(i.Constant)}] = true
				}
			}
		}
	}
	return n
}

// probe finds out whether this kernel has what the programs need, and whether
// this process may load them. It loads none of them: that is the first Apply's.
func probe() error {
	if err := rlimit.RemoveMemlock(); err != nil { // Linux before 5.11 counts maps
		return &kernel.MissingError{What: rights + ", before Linux 5.11 also CAP_SYS_RESOURCE", Since: firstKernel, Err: err}
	}
	sock, err := sock.Programs()
	if err != nil {
		return fmt.Errorf("read programs: %w", err)
	}
	tc, err := packet.Programs()
	if err != nil {
		return fmt.Errorf("read programs: %w", err)
	}
	return needsOf(sock, tc).missing()
}

// missing is a MissingError that names all that isn't there; nil if nothing is.
func (n needs) missing() error {
	var lacking []string
	var first error
	note := func(what string, err error) error {
		switch {
		case err == nil:
		case errors.Is(err, ebpf.ErrNotSupported):
			lacking = append(lacking, what)
			if first == nil {
				first = err
			}
		case errors.Is(err, os.ErrPermission):
			return &kernel.MissingError{What: rights, Since: firstKernel, Err: err}
		}
		return nil // a probe that comes to no end says nothing
	}
	for _, t := range slices.Sorted(maps.Keys(n.maps)) {
		if err := note(fmt.Sprintf("eBPF maps of type %s", t), features.HaveMapType(t)); err != nil {
			return err
		}
	}
	for _, t := range slices.Sorted(maps.Keys(n.programs)) {
		if err := note(fmt.Sprintf("eBPF programs of type %s", t), features.HaveProgramType(t)); err != nil {
			return err
		}
	}
	if len(lacking) == 0 {
		for h := range n.helpers {
			if err := note(fmt.Sprintf("the eBPF helper %s in programs of type %s", h.call, h.in), features.HaveProgramHelper(h.in, h.call)); err != nil {
				return err
			}
		}
	}
	if lacking == nil {
		return nil
	}
	slices.Sort(lacking)
	return &kernel.MissingError{What: strings.Join(lacking, ", "), Since: firstKernel, Err: first}
}
