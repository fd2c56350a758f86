package ebpf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// socketPath are the programs at the node's cgroup.
type socketPath struct {
	cgroup string
	netns  uint64 // cookie of the node's network namespace
	spec   *ebpf.CollectionSpec
	build  string // identifies the programs and their constants
	late   late

	standby  standby
	programs *ebpf.Collection // loaded and not attached yet; nil otherwise
}

// hooks are the programs of sock.c and where they go.
var hooks = map[string]ebpf.AttachType{
	"connect4": ebpf.AttachCGroupInet4Connect, "connect6": ebpf.AttachCGroupInet6Connect,
	"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
	"recvmsg4": ebpf.AttachCGroupUDP4Recvmsg, "recvmsg6": ebpf.AttachCGroupUDP6Recvmsg,
	"getpeername4": ebpf.AttachCgroupInet4GetPeername, "getpeername6": ebpf.AttachCgroupInet6GetPeername,
	"release": ebpf.AttachCgroupInetSockRelease,
}

func newSocketPath(cgroup string, netns uint64) (*socketPath, error) {
	spec, err := loadSock()
	if err != nil {
		return nil, fmt.Errorf("read programs: %w", err)
	}
	if err := spec.Variables["node_netns"].Set(netns); err != nil {
		return nil, fmt.Errorf("set the node's network namespace: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s", netns, _SockBytes))
	return &socketPath{cgroup: cgroup, netns: netns, spec: spec, build: hex.EncodeToString(sum[:6])}, nil
}

func (p *socketPath) object() *ebpf.CollectionSpec { return p.spec }

// pin is where the link of a hook is pinned.
func (p *socketPath) pin(dir, hook string) string { return filepath.Join(dir, hook+"-"+p.build) }

// load implements path. Programs that are attached needn't be loaded.
func (p *socketPath) load(s *store) error {
	if p.programs != nil {
		return nil
	}
	missing, err := p.missing(s.dir)
	if err != nil || len(missing) == 0 {
		return err
	}
	p.programs, err = ebpf.NewCollectionWithOptions(p.spec, ebpf.CollectionOptions{MapReplacements: s.forSpec(p.spec)})
	if err != nil {
		return explainLoad(err)
	}
	return nil
}

// attach makes the programs of this version run at the cgroup. Those of another
// one are replaced: there is always one of the two.
func (p *socketPath) attach(s *store, want *model.Table) error {
	if err := p.standBy(s, want); err != nil {
		return err
	}
	missing, err := p.missing(s.dir)
	if err != nil || len(missing) == 0 {
		p.unload()
		return err
	}
	if err := p.load(s); err != nil {
		return err
	}
	for _, hook := range missing {
		if err := p.attachHook(s.dir, hook, p.programs.Programs[hook]); err != nil {
			return err
		}
	}
	p.unload()
	return nil
}

// running reports whether programs of any version are attached.
func (p *socketPath) running(dir string) (bool, error) {
	pins, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if err != nil {
		return false, fmt.Errorf("list links: %w", err)
	}
	return len(pins) > 0, nil
}

// missing lists the hooks at which the programs of this version aren't.
func (p *socketPath) missing(dir string) ([]string, error) {
	id, err := cgroupID(p.cgroup)
	if err != nil {
		return nil, err
	}
	var missing []string
	for hook := range hooks {
		at, err := attachedTo(p.pin(dir, hook))
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

// attachedTo is the cgroup that a pinned link leads to; 0 if there is none.
func attachedTo(pin string) (uint64, error) {
	info, err := pinnedLink(pin)
	if err != nil || info == nil || info.Cgroup() == nil {
		return 0, err
	}
	return info.Cgroup().CgroupId, nil
}

// attachHook puts a program in the place of the one of another version, or adds
// it.
func (p *socketPath) attachHook(dir, hook string, program *ebpf.Program) error {
	others, err := filepath.Glob(filepath.Join(dir, hook+"-*"))
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	own, err := link.AttachCgroup(link.CgroupOptions{Path: p.cgroup, Attach: hooks[hook], Program: program})
	if err != nil {
		return fmt.Errorf("attach program %s to cgroup %s: %w", hook, p.cgroup, err)
	}
	pin, next := p.pin(dir, hook), p.pin(dir, hook)+"-new"
	if err := own.Pin(next); err != nil {
		return errors.Join(fmt.Errorf("pin program %s: %w", hook, err), own.Close())
	}
	// What one of the two has translated, the other takes for no Service traffic.
	for _, old := range others {
		if err := detach(old); err != nil {
			return errors.Join(err, own.Close())
		}
	}
	if err := os.Rename(next, pin); err != nil {
		return errors.Join(fmt.Errorf("pin program %s: %w", hook, err), own.Close())
	}
	return own.Close()
}

// objects lists the programs that run at a cgroup.
func (p *socketPath) objects(dir string) ([]kernel.Object, error) {
	id, err := cgroupID(p.cgroup)
	if err != nil {
		return nil, err
	}
	pins, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var list []kernel.Object
	for _, pin := range pins {
		at, err := attachedTo(pin)
		if err != nil {
			return nil, err
		}
		hook, build, _ := strings.Cut(filepath.Base(pin), "-")
		o := programObject(hook)
		switch {
		case at != id:
			o.Text = "not attached to the node's cgroup"
		case build != p.build:
			o.Text = "of another version"
		}
		list = append(list, o)
	}
	return list, nil
}

// remove detaches the programs of all versions.
func (p *socketPath) remove(dir string) error {
	pins, err := filepath.Glob(filepath.Join(dir, "*-*"))
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, pin := range pins {
		if err := detach(pin); err != nil {
			return err
		}
	}
	return errors.Join(p.close(), p.giveBack(dir))
}

// close implements path: programs that are attached are the kernel's.
func (p *socketPath) close() error {
	p.standby.end()
	p.unload()
	return nil
}

// unload lets go of programs that needn't be attached any more.
func (p *socketPath) unload() {
	if p.programs != nil {
		p.programs.Close()
		p.programs = nil
	}
}

func programObject(hook string) kernel.Object {
	return kernel.Object{Kind: "program", Name: "cgroup " + hook, Text: "attached"}
}

// explainLoad says more clearly what kernels mean that don't take a program.
func explainLoad(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EINVAL):
		return &kernel.MissingError{What: "what ebpf mode needs of eBPF", Since: "5.10", Err: err}
	case errors.As(err, &verifier):
		return &kernel.MissingError{What: "what ebpf mode needs of eBPF", Since: "5.10", Err: fmt.Errorf("load programs: %w", verifier)}
	}
	return fmt.Errorf("load programs: %w", err)
}
