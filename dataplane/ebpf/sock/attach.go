// Package sock balances at the socket: its programs at the node's cgroup give a socket
// its backend when it connects or sends.
//
// cgroup.go finds the cgroup and attach.go puts the programs there. gc.go takes sockets
// away from backends that are gone; deadlines.go does so when a deadline has passed. defer.go
// waits while IPVS serves the node.
package sock

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Path are the programs at the node's cgroup; without one it attaches nothing.
type Path struct {
	cgroup string
	netns  uint64 // cookie of the node's network namespace
	spec   *ebpf.CollectionSpec
	build  string // identifies the programs and their constants
	late   deadlines
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
	programs, err := Programs()
	if err != nil {
		return nil, fmt.Errorf("read programs: %w", err)
	}
	spec := programs.Copy()
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
	if p.programs != nil || p.cgroup == "" {
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
	if p.cgroup == "" {
		return nil // what an earlier process has attached, where it knew one, stays
	}
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

// Objects lists the programs that run at a cgroup.
func (p *Path) Objects(dir string) ([]kernel.Object, error) {
	if p.cgroup == "" {
		return nil, nil
	}
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
	p.late.close()
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

// Programs are the compiled programs of the socket path, which are read once. The caller
// must not change them.
var Programs = sync.OnceValues(loadSock)
