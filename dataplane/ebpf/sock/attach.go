// Package sock balances at the socket: its programs at the node's cgroup give a socket
// its backend when it connects or sends.
//
// cgroup.go finds the cgroup and attach.go puts the programs there. gc.go takes sockets
// away from backends that are gone; owners.go finds them in processes, destroy.go ends
// them in the kernel. defer.go waits while IPVS serves the node.
package sock

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

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Path are the programs at the node's cgroup.
type Path struct {
	cgroup string
	netns  uint64 // cookie of the node's network namespace
	spec   *ebpf.CollectionSpec
	build  string // identifies the programs and their constants
	late   lateResets
	Steps  *kernel.Steps

	deferral tcpDeferral
	programs *ebpf.Collection // loaded and not attached yet; nil otherwise
}

// Hooks are the programs of sock.c and where they go.
var Hooks = map[string]ebpf.AttachType{
	"connect4": ebpf.AttachCGroupInet4Connect, "connect6": ebpf.AttachCGroupInet6Connect,
	"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
	"recvmsg4": ebpf.AttachCGroupUDP4Recvmsg, "recvmsg6": ebpf.AttachCGroupUDP6Recvmsg,
	"getpeername4": ebpf.AttachCgroupInet4GetPeername, "getpeername6": ebpf.AttachCgroupInet6GetPeername,
	"release": ebpf.AttachCgroupInetSockRelease,
}

func New(cgroup string, netns uint64) (*Path, error) {
	spec, err := loadSock()
	if err != nil {
		return nil, fmt.Errorf("read programs: %w", err)
	}
	if err := spec.Variables["node_netns"].Set(netns); err != nil {
		return nil, fmt.Errorf("set the node's network namespace: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s", netns, _SockBytes))
	return &Path{cgroup: cgroup, netns: netns, spec: spec, build: hex.EncodeToString(sum[:6])}, nil
}

func (p *Path) Spec() *ebpf.CollectionSpec { return p.spec }

// pin is where the link of a hook is pinned.
func (p *Path) pin(dir, hook string) string { return filepath.Join(dir, hook+"-"+p.build) }

// Load implements path. Programs that are attached needn't be loaded.
func (p *Path) Load(s *maps.Store) error {
	if p.programs != nil {
		return nil
	}
	missing, err := p.missing(s.Dir)
	if err != nil || len(missing) == 0 {
		return err
	}
	p.programs, err = s.LoadPrograms(p.spec)
	return err
}

// Attach makes the programs of this version run at the cgroup. Those of another
// one are replaced: there is always one of the two.
func (p *Path) Attach(s *maps.Store, want *model.Table) error {
	if err := p.deferTCP(s, want); err != nil {
		return err
	}
	missing, err := p.missing(s.Dir)
	if err != nil || len(missing) == 0 {
		p.unload()
		return err
	}
	if err := p.Load(s); err != nil {
		return err
	}
	for _, hook := range missing {
		if err := p.attachHook(s.Dir, hook, p.programs.Programs[hook]); err != nil {
			return err
		}
	}
	p.unload()
	return nil
}

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

// Objects lists the programs that run at a cgroup.
func (p *Path) Objects(dir string) ([]kernel.Object, error) {
	id, err := cgroupID(p.cgroup)
	if err != nil {
		return nil, err
	}
	links, err := pins.Links(dir, "*-*")
	if err != nil {
		return nil, err
	}
	var list []kernel.Object
	for _, pin := range links {
		at, err := pins.CgroupOf(pin)
		if err != nil {
			return nil, err
		}
		hook, build, _ := strings.Cut(filepath.Base(pin), "-")
		o := ProgramObject(hook)
		build = strings.TrimSuffix(build, unfinished)
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

// Remove detaches the programs of all versions.
func (p *Path) Remove(dir string) error {
	links, err := pins.Links(dir, "*-*")
	if err != nil {
		return err
	}
	for _, pin := range links {
		if err := errors.Join(pins.Detach(pin), p.Steps.At("socket program detached")); err != nil {
			return err
		}
	}
	return errors.Join(p.Close(), p.reconnectToFrontends(dir))
}

// Close implements path: programs that are attached are the kernel's.
func (p *Path) Close() error {
	p.deferral.end()
	p.unload()
	return nil
}

// unload lets go of programs that needn't be attached any more.
func (p *Path) unload() {
	if p.programs != nil {
		p.programs.Close()
		p.programs = nil
	}
}

func ProgramObject(hook string) kernel.Object {
	return kernel.Object{Kind: "program", Name: "cgroup " + hook, Text: "attached"}
}

// Programs are the compiled programs of the socket path.
func Programs() (*ebpf.CollectionSpec, error) { return loadSock() }
