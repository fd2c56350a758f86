package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Connections that IPVS translates outlive it: Remove hands them over to
// conntrack, whose NAT then does for them what IPVS did. So changing to another
// plane breaks none. IPVS forgets its connections once their destinations are
// gone, and conntrack's entries with them; in the moment until there are new
// ones, packets of these connections are dropped, to be sent again, lest
// somebody answer them who knows nothing of the connection.

// handOver removes virtual servers and gives their connections to conntrack.
func (p *Plane) handOver(ctx context.Context, a *actual) error {
	if len(a.servers) == 0 {
		return nil
	}
	var problems []error
	try := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	for _, f := range iptables.Families() {
		if err := p.pause(ctx, f); f == iptables.IPv4 || !kernel.IsMissing(err) {
			try(err)
		}
	}
	kernel.Quiesce() // or a connection that is being made would be missed
	flows, err := a.flows()
	try(err)
	try(p.removeAll(a))
	try(waitForgotten(ctx, a))
	for _, f := range flows {
		try(f.translate())
	}
	return errors.Join(problems...)
}

// late drops new connections of this node's own processes that IPVS would still
// take, where the userspace mode comes next: all other modes have translated
// them before. (The sender of a datagram that is dropped here would be told so, so
// datagrams are not.)
func (p *Plane) late(r ruleSet) ([]string, error) {
	relayed, err := p.dummy.relayed()
	if err != nil || !relayed {
		return nil, err
	}
	first := "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN "
	return []string{
		first + r.in(setAddresses, "dst") + " -j DROP",
		first + "-m addrtype --dst-type LOCAL " + r.in(setNodePortTCP, "dst") + " -j DROP",
	}, nil
}

func (p *Plane) removeAll(a *actual) error {
	var problems []error
	for id := range a.servers {
		if err := p.removeServer(id); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// pause ends all refusals, as whoever comes next may serve what these servers
// don't any more, and has packets to and from the servers dropped: those of
// connections to be handed over, and new ones that would come too late for it.
// Those of this node's own processes are dropped when they come back by way of
// the loopback interface, which is where they get to without IPVS.
func (p *Plane) pause(ctx context.Context, f iptables.Family) error {
	in := &iptables.Input{}
	filter, mangle := in.Block("filter"), in.Block("mangle")
	filter.Chain(chainFilter)
	filter.Chain(chainOutFilter)
	r := ruleSet{f, &model.Settings{}, p.options.MasqueradeMark}
	toNode := "-m addrtype --dst-type LOCAL "
	mangle.Chain(chainInput,
		"-m conntrack --ctstate INVALID,NEW "+r.in(setLoopBack, "src,src,src")+" -j DROP",
		r.in(setAddresses, "dst")+" -j DROP",
		"-p tcp "+toNode+r.in(setNodePortTCP, "dst")+" -j DROP",
		"-p udp "+toNode+r.in(setNodePortUDP, "dst")+" -j DROP",
		"-p sctp "+r.in(setNodePortSCTP, "dst,dst")+" -j DROP",
	)
	mangle.Insert("FORWARD", "-j "+chainInput)
	// Packets from the middle of a connection that conntrack has just forgotten
	// must not reach another plane's translation, which would take them for new.
	middle := "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m conntrack --ctstate INVALID,NEW "
	strays := []string{middle + r.in(setAddresses, "dst") + " -j DROP", middle + toNode + r.in(setNodePortTCP, "dst") + " -j DROP"}
	mangle.Chain(chainFromPod, strays...)
	mangle.Insert("PREROUTING", "-j "+chainFromPod)
	late, err := p.late(r)
	if err != nil {
		return err
	}
	mangle.Chain(chainOutput, append(strays, late...)...)
	if err := p.iptables.Restore(ctx, f, in.Bytes()); err != nil {
		return fmt.Errorf("pause connections: %w", err)
	}
	return nil
}

// waitForgotten waits until IPVS has no connections of these servers. It
// forgets them a moment after their destinations, and conntrack's entries with
// them, even if those were made anew meanwhile. (That is so since Linux 5.9;
// before, it was with their next packet, so there is nothing to wait for.)
func waitForgotten(ctx context.Context, a *actual) error {
	if oldKernel() {
		return nil
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		content, err := os.ReadFile("/proc/thread-self/net/ip_vs_conn")
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read IPVS connections: %w", err)
		}
		if !a.connected(string(content)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// connected reports whether IPVS's list of connections names one of the
// servers: "TCP 0AF40102 8CE2 0A60000A 0050 ...", or with IPv6 addresses in
// brackets. Lines without a client's port are the memory of session affinity.
func (a *actual) connected(list string) bool {
	virtual := map[string]bool{}
	for id := range a.servers {
		if id.mark == 0 {
			virtual[procAddr(id.key.Addr)+fmt.Sprintf(" %04X", id.key.Port)] = true
		}
	}
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[2] != "0000" && virtual[fields[3]+" "+fields[4]] {
			return true
		}
	}
	return false
}

func procAddr(a netip.Addr) string {
	if a.Is4() {
		return fmt.Sprintf("%X", a.AsSlice())
	}
	return "[" + a.StringExpanded() + "]"
}
