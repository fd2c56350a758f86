package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// restartTime is how long routers keep the routes of an agent that restarts.
const restartTime = 2 * time.Minute

// agreement is what both sides' OPEN messages say together.
type agreement struct {
	asn             uint32
	hold, keepalive time.Duration // 0 is none
	families        []bgp.Family
	fourOctets      bool // the router knows AS numbers of four bytes (RFC 6793)
	nextHops        bool // IPv4 routes may have IPv6 next hops (RFC 8950)
	keeps           bool // the router keeps routes while this side restarts
	note            string
}

// offered are the families that this side offers.
func (c *connection) offered() []bgp.Family {
	switch {
	case c.peer.BothFamilies || c.peer.Interface != "":
		return []bgp.Family{bgp.RF_IPv4_UC, bgp.RF_IPv6_UC}
	case localAddress(c).Is6():
		return []bgp.Family{bgp.RF_IPv6_UC}
	}
	return []bgp.Family{bgp.RF_IPv4_UC}
}

// open exchanges OPEN messages and waits until both sides have confirmed.
func (c *connection) open(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if err := c.SetReadDeadline(time.Now().Add(routerTimeout)); err != nil {
		return err
	}
	ours, err := c.ours()
	if err != nil {
		return err
	}
	if err := c.write(ours); err != nil {
		return err
	}
	c.update(func(st *Status) { st.State = OpenSent })
	theirs, err := c.expect(bgp.BGP_MSG_OPEN)
	if err != nil {
		return err
	}
	open, err := parseOpen(theirs)
	if err != nil {
		return errors.Join(err, c.notify(bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, 0))
	}
	var refused *refusal
	if c.agreed, err = c.agree(open); errors.As(err, &refused) {
		return errors.Join(err, c.notify(bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, refused.subcode))
	}
	if err := c.write(bgp.NewBGPKeepAliveMessage()); err != nil {
		return err
	}
	c.update(func(st *Status) { st.State = OpenConfirm })
	_, err = c.expect(bgp.BGP_MSG_KEEPALIVE)
	return err
}

// ours is this side's OPEN message.
func (c *connection) ours() (*bgp.BGPMessage, error) {
	p := &c.peer
	capabilities := []bgp.ParameterCapabilityInterface{bgp.NewCapRouteRefresh(), bgp.NewCapFourOctetASNumber(p.LocalASN)}
	var kept []*bgp.CapGracefulRestartTuple
	for _, f := range c.offered() {
		capabilities = append(capabilities, bgp.NewCapMultiProtocol(f))
		// The data plane goes on forwarding while the agent restarts.
		kept = append(kept, bgp.NewCapGracefulRestartTuple(f, true))
	}
	if slices.Contains(c.offered(), bgp.RF_IPv4_UC) && localAddress(c).Is6() {
		tuple := bgp.NewCapExtendedNexthopTuple(bgp.RF_IPv4_UC, bgp.AFI_IP6)
		capabilities = append(capabilities, bgp.NewCapExtendedNexthop([]*bgp.CapExtendedNexthopTuple{tuple}))
	}
	if p.GracefulRestart {
		capabilities = append(capabilities, bgp.NewCapGracefulRestart(c.restart, false, uint16(restartTime.Seconds()), kept))
	}
	id, err := c.routerID()
	if err != nil {
		return nil, err
	}
	return bgp.NewBGPOpenMessage(twoOctets(p.LocalASN), uint16(p.HoldTime.Seconds()), id,
		[]bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(capabilities)})
}

// twoOctets is an AS number where there is no room for a longer one (RFC 6793).
func twoOctets(asn uint32) uint16 {
	if asn > 65535 {
		return bgp.AS_TRANS
	}
	return uint16(asn)
}

// routerID is the configured one, or the node's IPv4 address: that of the session,
// or any.
func (c *connection) routerID() (netip.Addr, error) {
	if c.peer.RouterID.IsValid() {
		return c.peer.RouterID, nil
	}
	if local := localAddress(c); local.Is4() {
		return local, nil
	}
	if a := sibling(localAddress(c), false); a.IsValid() {
		return a, nil
	}
	return netip.Addr{}, errors.New("spec.routerID: must be given, since this node has no IPv4 address")
}

// refusal is an OPEN message that no session can come of.
type refusal struct {
	subcode uint8
	text    string
}

func (r *refusal) Error() string { return r.text }

// agree works out what both sides can do.
func (c *connection) agree(theirs *bgp.BGPOpen) (agreement, error) {
	p := &c.peer
	a := agreement{asn: uint32(theirs.MyAS), hold: min(p.HoldTime, time.Duration(theirs.HoldTime)*time.Second)}
	var families []bgp.Family
	for _, parameter := range theirs.OptParams {
		list, ok := parameter.(*bgp.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, capability := range list.Capability {
			switch v := capability.(type) {
			case *bgp.CapFourOctetASNumber:
				a.asn, a.fourOctets = v.CapValue, true
			case *bgp.CapMultiProtocol:
				families = append(families, v.CapValue)
			case *bgp.CapGracefulRestart:
				a.keeps = p.GracefulRestart
			case *bgp.CapExtendedNexthop:
				a.nextHops = slices.ContainsFunc(v.Tuples, func(t *bgp.CapExtendedNexthopTuple) bool {
					return t.NLRIAFI == bgp.AFI_IP && t.NexthopAFI == bgp.AFI_IP6
				})
			}
		}
	}
	switch {
	case theirs.Version != 4:
		return a, &refusal{bgp.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, fmt.Sprintf("the router speaks version %d of BGP", theirs.Version)}
	case theirs.HoldTime == 1 || theirs.HoldTime == 2:
		return a, &refusal{bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, fmt.Sprintf("the router's hold time is %d s", theirs.HoldTime)}
	case p.ASN != 0 && a.asn != p.ASN:
		return a, &refusal{bgp.BGP_ERROR_SUB_BAD_PEER_AS, fmt.Sprintf("the router has AS number %d, not %d (spec.peerASN)", a.asn, p.ASN)}
	case p.ASN == 0 && p.Internal != (a.asn == p.LocalASN):
		return a, &refusal{bgp.BGP_ERROR_SUB_BAD_PEER_AS, fmt.Sprintf("the router has AS number %d, which spec.dynamicASN does not allow", a.asn)}
	}
	if len(families) == 0 {
		families = []bgp.Family{bgp.RF_IPv4_UC} // RFC 4760: a router that says nothing
	}
	for _, f := range c.offered() {
		if slices.Contains(families, f) {
			a.families = append(a.families, f)
		} else {
			a.note = fmt.Sprintf("the router takes no routes of %s", f)
		}
	}
	if a.hold > 0 {
		a.keepalive = a.hold / 3
		if p.Keepalive > 0 {
			a.keepalive = min(p.Keepalive, a.hold/3)
		}
	}
	return a, nil
}
