package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// While connections change hands, packets to and from virtual servers are dropped: they
// are frozen. Clients send again, but wait twice as long each time, so it must be short,
// also where commands take seconds. Therefore the rules are written beforehand, for
// packets whose source is in a set. Freezing puts everybody into the set, thawing nobody.

// The chains that drop frozen packets, in the table mangle, and the name of their sets.
// Releases before this one have them by the same names.
const (
	chainFreeze       = "KUBE-IPVS-PAUSE"
	chainFreezeStrays = "KUBE-IPVS-PAUSE-STRAYS"
	chainFreezeOutput = "KUBE-IPVS-PAUSE-OUTPUT"
	freezeSet         = "KUBE-IPVS-PAUSE"
)

var freezeChains = []string{chainFreeze, chainFreezeStrays, chainFreezeOutput}

// everybody is what is in the set while packets are frozen.
var everybody = map[bool]netip.Prefix{
	false: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	true:  netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// freezeSetID has the type of that set.
func freezeSetID(ipv6 bool) setID { return setID{setReserved, ipv6} }

func everybodyElements(ipv6 bool) []ipset.Marked {
	var list []ipset.Marked
	for _, half := range halves(everybody[ipv6]) {
		list = append(list, ipset.Marked{Element: ipset.Element{Net: half}})
	}
	return list
}

// prepareFreeze writes the rules, and ends all refusals, as whoever comes
// next may serve what these servers don't any more.
func (p *Plane) prepareFreeze(ctx context.Context) error {
	var problems []error
	for _, f := range iptables.Families() {
		ipv6 := f == iptables.IPv6
		name := familyName(freezeSet, ipv6)
		there, err := p.sets.List(name)
		switch {
		case err == nil && there == nil:
			err = p.sets.Create(freezeSetID(ipv6).of(), name)
		case err == nil:
			err = p.sets.Remove(freezeSetID(ipv6).of(), name, everybodyElements(ipv6))
		}
		if err == nil {
			err = p.writeFreeze(ctx, f)
		}
		if err != nil && (f == iptables.IPv4 || !kernel.IsMissing(err)) {
			problems = append(problems, fmt.Errorf("prepare to freeze connections: %w", err))
		}
	}
	return errors.Join(problems...)
}

// writeFreeze has packets to and from the servers dropped: those of connections to be
// handed over, and new ones that would come too late for it. Those of this node's own
// processes are dropped when they come back by way of the loopback interface, which is
// where they get to without IPVS.
func (p *Plane) writeFreeze(ctx context.Context, f iptables.Family) error {
	in := &iptables.Input{}
	filter, mangle := in.Block("filter"), in.Block("mangle")
	filter.Chain(chainFilter)
	filter.Chain(chainOutFilter)
	r := ruleSet{f, &model.Settings{}, p.options.MasqueradeMark}
	toNode := "-m addrtype --dst-type LOCAL "
	mangle.Chain(chainFreeze,
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
	mangle.Chain(chainFreezeStrays, strays...)
	late, err := p.late(r)
	if err != nil {
		return err
	}
	mangle.Chain(chainFreezeOutput, append(strays, late...)...)
	frozen := "-m set --match-set " + familyName(freezeSet, f == iptables.IPv6) + " src -j "
	mangle.Insert("INPUT", frozen+chainFreeze)
	mangle.Insert("FORWARD", frozen+chainFreeze)
	mangle.Insert("PREROUTING", frozen+chainFreezeStrays)
	mangle.Insert("OUTPUT", frozen+chainFreezeOutput)
	return p.iptables.Restore(ctx, f, in.Bytes())
}

// late drops new connections of this node's own processes that IPVS would still
// take, where the next plane sees them after IPVS: all others have translated
// them before. (The sender of a datagram that is dropped here would be told so, so
// datagrams are not.)
func (p *Plane) late(r ruleSet) ([]string, error) {
	takes, err := migrate.TranslatesLate()
	if err != nil || !takes {
		return nil, err
	}
	first := "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN "
	return []string{
		first + r.in(setAddresses, "dst") + " -j DROP",
		first + "-m addrtype --dst-type LOCAL " + r.in(setNodePortTCP, "dst") + " -j DROP",
	}, nil
}

// freeze begins to drop packets.
func (p *Plane) freeze() error {
	return p.eachFreezeSet(func(ipv6 bool, name string) error {
		return p.sets.Add(freezeSetID(ipv6).of(), name, everybodyElements(ipv6))
	})
}

// thaw ends it. The packets' marks go first: what they mean has gone, and whoever comes
// next may serve what was refused by them.
func (p *Plane) thaw() error {
	return p.eachFreezeSet(func(ipv6 bool, name string) error {
		for o := range model.Origin(model.NumOrigins) {
			if err := p.sets.Flush(setID{originSet(o), ipv6}.name()); err != nil {
				return err
			}
		}
		return p.sets.Remove(freezeSetID(ipv6).of(), name, everybodyElements(ipv6))
	})
}

func (p *Plane) eachFreezeSet(do func(ipv6 bool, name string) error) error {
	return errors.Join(do(false, familyName(freezeSet, false)), do(true, familyName(freezeSet, true)))
}
