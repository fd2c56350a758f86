package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// A pause holds packets to and from virtual servers up, while their connections change
// hands. Clients send again, but after twice the time each time, so it must be short,
// also where commands take seconds. Therefore rules are written beforehand, for
// packets whose source is in a set; the pause begins when that is everybody, and
// ends when it is nobody.

// The chains of a pause, in the table mangle, and the name of its sets.
const (
	chainPause       = "KUBE-IPVS-PAUSE"
	chainPauseStrays = "KUBE-IPVS-PAUSE-STRAYS"
	chainPauseOutput = "KUBE-IPVS-PAUSE-OUTPUT"
	pauseSet         = "KUBE-IPVS-PAUSE"
)

var pauseChains = []string{chainPause, chainPauseStrays, chainPauseOutput}

// everybody is what is in a pause's set.
var everybody = map[bool]netip.Prefix{
	false: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	true:  netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// pauseSetID has the type of a pause's set.
func pauseSetID(ipv6 bool) setID { return setID{setReserved, ipv6} }

func elementsOfPause(ipv6 bool) []markedElement {
	var list []markedElement
	for _, half := range halves(everybody[ipv6]) {
		list = append(list, markedElement{element: element{net: half}})
	}
	return list
}

// preparePause writes the rules of a pause, and ends all refusals, as whoever comes
// next may serve what these servers don't any more.
func (p *Plane) preparePause(ctx context.Context) error {
	var problems []error
	for _, f := range iptables.Families() {
		ipv6 := f == iptables.IPv6
		name := familyName(pauseSet, ipv6)
		there, err := p.sets.list(name)
		switch {
		case err == nil && there == nil:
			err = p.sets.create(pauseSetID(ipv6), name)
		case err == nil:
			err = p.sets.remove(pauseSetID(ipv6), name, elementsOfPause(ipv6))
		}
		if err == nil {
			err = p.writePause(ctx, f)
		}
		if err != nil && (f == iptables.IPv4 || !kernel.IsMissing(err)) {
			problems = append(problems, fmt.Errorf("prepare to pause connections: %w", err))
		}
	}
	return errors.Join(problems...)
}

// writePause has packets to and from the servers dropped: those of connections to be
// handed over, and new ones that would come too late for it. Those of this node's own
// processes are dropped when they come back by way of the loopback interface, which is
// where they get to without IPVS.
func (p *Plane) writePause(ctx context.Context, f iptables.Family) error {
	in := &iptables.Input{}
	filter, mangle := in.Block("filter"), in.Block("mangle")
	filter.Chain(chainFilter)
	filter.Chain(chainOutFilter)
	r := ruleSet{f, &model.Settings{}, p.options.MasqueradeMark}
	toNode := "-m addrtype --dst-type LOCAL "
	mangle.Chain(chainPause,
		"-m conntrack --ctstate INVALID,NEW "+r.in(setLoopBack, "src,src,src")+" -j DROP",
		r.in(setAddresses, "dst")+" -j DROP",
		"-p tcp "+toNode+r.in(setNodePortTCP, "dst")+" -j DROP",
		"-p udp "+toNode+r.in(setNodePortUDP, "dst")+" -j DROP",
		"-p sctp "+r.in(setNodePortSCTP, "dst,dst")+" -j DROP",
	)
	// Packets from the middle of a connection that conntrack has just forgotten
	// must not reach another plane's translation, which would take them for new.
	middle := "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate INVALID,NEW "
	strays := []string{middle + r.in(setAddresses, "dst") + " -j DROP", middle + toNode + r.in(setNodePortTCP, "dst") + " -j DROP"}
	mangle.Chain(chainPauseStrays, strays...)
	late, err := p.late(r)
	if err != nil {
		return err
	}
	mangle.Chain(chainPauseOutput, append(strays, late...)...)
	paused := "-m set --match-set " + familyName(pauseSet, f == iptables.IPv6) + " src -j "
	mangle.Insert("INPUT", paused+chainPause)
	mangle.Insert("FORWARD", paused+chainPause)
	mangle.Insert("PREROUTING", paused+chainPauseStrays)
	mangle.Insert("OUTPUT", paused+chainPauseOutput)
	return p.iptables.Restore(ctx, f, in.Bytes())
}

// ebpfKeeper is the table of nf_tables that the ebpf mode has while it leaves
// connections to IPVS.
const ebpfKeeper = "fairway-ebpf"

// late drops new connections of this node's own processes that IPVS would still
// take, where the userspace or the ebpf mode comes next: all other modes have translated
// them before. (The sender of a datagram that is dropped here would be told so, so
// datagrams are not.)
func (p *Plane) late(r ruleSet) ([]string, error) {
	takes, err := p.dummy.relayed()
	if err == nil && !takes {
		takes, err = conntrack.KeepsTranslating(ebpfKeeper)
	}
	if err != nil || !takes {
		return nil, err
	}
	first := "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN "
	return []string{
		first + r.in(setAddresses, "dst") + " -j DROP",
		first + "-m addrtype --dst-type LOCAL " + r.in(setNodePortTCP, "dst") + " -j DROP",
	}, nil
}

// pause begins a pause.
func (p *Plane) pause() error {
	return p.eachPause(func(ipv6 bool, name string) error {
		return p.sets.add(pauseSetID(ipv6), name, elementsOfPause(ipv6))
	})
}

// goOn ends it. The packets' marks go first: what they mean has gone, and whoever comes
// next may serve what was refused by them.
func (p *Plane) goOn() error {
	return p.eachPause(func(ipv6 bool, name string) error {
		for o := range model.Origin(model.NumOrigins) {
			if err := p.sets.flush(setID{originSet(o), ipv6}.name()); err != nil {
				return err
			}
		}
		return p.sets.remove(pauseSetID(ipv6), name, elementsOfPause(ipv6))
	})
}

func (p *Plane) eachPause(do func(ipv6 bool, name string) error) error {
	return errors.Join(do(false, familyName(pauseSet, false)), do(true, familyName(pauseSet, true)))
}
