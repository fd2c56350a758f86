// Package lead has what the programs have in common that lead packets of connections to the
// node where these began: a program at an interface, before the data plane, which stays when the
// process ends; and the connections that are this node's own. bpf/flow.h is the same for the
// programs themselves.
package lead

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// UnseenUDP is for how long UDP flows are taken for another node's when they show up: they
// have no beginning that could be seen.
const UnseenUDP = 2 * time.Second

// JustBegun is how long connections that began here may not be among those that are listed.
const JustBegun = 5 * time.Second

// The maps of connections that began here, and of how full that is (bpf/flow.h).
const (
	begun    = "begun"
	fullness = "fullness"
	added    = uint32(0)
)

// crowdedAt is how many connections may begin before the agent is to look which are over. There is
// room for four times as many; when that is used up, nothing is led any more.
const crowdedAt = 1 << 16

// Program is that of an interface.
type Program struct {
	Maps map[string]*ebpf.Map

	place  tcfilter.First
	spec   func() (*ebpf.CollectionSpec, error)
	loaded *ebpf.Collection
	there  bool
}

// Open loads a program for an interface in the network namespace of the calling thread. Where
// an earlier process left one, it goes on in its place, with its maps; otherwise nothing is
// attached yet. It takes CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and Linux 5.10.
func Open(device *net.Interface, at tcfilter.FirstAt, spec func() (*ebpf.CollectionSpec, error)) (*Program, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the limit of locked memory: %w", err)
	}
	n, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	p := &Program{place: at(n, device.Index), spec: spec}
	if err := p.load(); err != nil {
		n.Close()
		return nil, fmt.Errorf("load program %s: %w", p.place.Program, err)
	}
	return p, nil
}

func (p *Program) load() error {
	spec, err := p.spec()
	if err != nil {
		return err
	}
	earlier, err := p.place.Open()
	if err != nil {
		return err
	}
	loaded, err := p.place.LoadSuccessor(spec, earlier)
	if earlier != nil {
		err = errors.Join(err, earlier.Close())
	}
	if err != nil {
		return err
	}
	p.loaded, p.Maps = loaded, loaded.Maps
	if earlier == nil {
		return nil
	}
	if err := p.Attach(); err != nil {
		loaded.Close()
		return err
	}
	return nil
}

// Loaded is the program that is, or will be, attached.
func (p *Program) Loaded() *ebpf.Program { return p.loaded.Programs[p.place.Program] }

// IsThere reports whether the program is attached.
func (p *Program) IsThere() bool { return p.there }

// Attach attaches the program, unless it is.
func (p *Program) Attach() error {
	if p.there {
		return nil
	}
	if err := p.place.Put(p.loaded); err != nil {
		return err
	}
	p.there = true
	return nil
}

// Remove takes the program away from the interface, if it is there. Its maps stay.
func (p *Program) Remove() error {
	if !p.there {
		return nil
	}
	p.there = false
	_, err := p.place.Remove()
	return err
}

// Renew loads the program anew, with empty maps, once it was taken away.
func (p *Program) Renew() error {
	before := p.loaded
	if err := p.load(); err != nil {
		return err
	}
	before.Close()
	return nil
}

// Note notes connections to an address that began here.
func (p *Program) Note(a netip.Addr, list []Flow) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := p.Maps[begun].Put(KeyOf(f, a), uint64(now)); err != nil {
			return fmt.Errorf("tell connections of %s that began here: %w", a, err)
		}
	}
	return nil
}

// IsCrowded reports whether so many connections have begun that those are to be forgotten that are
// over.
func (p *Program) IsCrowded() bool {
	var n uint64
	return p.Maps[fullness].Lookup(added, &n) == nil && n >= crowdedAt
}

// Forget forgets connections to an address that were noted, or seen to begin, longer than some
// time ago, but for those that are there.
func (p *Program) Forget(a netip.Addr, there map[Flow]bool, ago time.Duration) error {
	now, err := tcfilter.BootTime()
	if err != nil {
		return err
	}
	var k Key
	var since uint64
	var gone []Key
	left := uint64(0)
	for all := p.Maps[begun].Iterate(); all.Next(&k, &since); left++ {
		if f, to := k.flow(); to == a && !there[f] && time.Duration(since) < now-ago {
			gone = append(gone, k)
		}
	}
	for _, k := range gone {
		if err := p.Maps[begun].Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a connection of %s: %w", a, err)
		}
	}
	// Those that stay don't make it crowded: they would be looked at all the time.
	if err := p.Maps[fullness].Put(added, (left-uint64(len(gone)))/2); err != nil {
		return fmt.Errorf("count the connections that began here: %w", err)
	}
	return nil
}

// Close leaves the program where it is, if it is attached.
func (p *Program) Close() error {
	p.loaded.Close()
	p.place.Netlink.Close()
	return nil
}

// Detach ends all of it.
func (p *Program) Detach() error {
	_, err := p.place.Remove()
	return errors.Join(err, p.Close())
}
