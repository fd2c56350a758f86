package bgp

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairway-net/fairway/announce"
)

// tellAll tells the router all routes and that these are all (End-of-RIB).
func (c *connection) tellAll() error {
	if err := c.tell(); err != nil {
		return err
	}
	for _, f := range c.agreed.families {
		if err := c.write(bgp.NewEndOfRib(f)); err != nil {
			return err
		}
	}
	return nil
}

// tellAgain tells the router all routes once more, as it asks (RFC 2918). What is to be withdrawn
// is withdrawn first: the router doesn't forget by itself what it isn't told again.
func (c *connection) tellAgain() error {
	if err := c.tell(); err != nil {
		return err
	}
	c.mu.Lock()
	clear(c.sent)
	c.mu.Unlock()
	return c.tellAll()
}

// hopsAgain is how often next hops are looked at: addresses of interfaces come and go.
const hopsAgain = 5 * time.Second

// hopsChanged reports whether a family has another next hop than the router was told, has one
// now, or has none any more.
func (c *connection) hopsChanged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.agreed.families {
		isWanted := false
		for prefix := range c.wanted {
			isWanted = isWanted || familyOf(prefix) == f
		}
		if hop, _ := c.nextHop(f); isWanted && hop != c.hops[f] {
			return true
		}
	}
	return false
}

// tell tells the router what changed: first what is withdrawn.
func (c *connection) tell() error {
	c.mu.Lock()
	wanted, sent := c.wanted, maps.Clone(c.sent)
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	defer func() {
		for _, w := range waiting {
			close(w)
		}
	}()
	told := map[bgp.Family]bool{}
	hops := map[bgp.Family]netip.Addr{}
	for _, f := range c.agreed.families {
		hop, hasHop := c.nextHop(f)
		c.mu.Lock()
		moved := hop != c.hops[f]
		c.mu.Unlock()
		var gone []netip.Prefix
		fresh := map[netip.Prefix]announce.Route{}
		for prefix := range sent {
			if _, ok := wanted[prefix]; (!ok || !hasHop) && familyOf(prefix) == f {
				gone = append(gone, prefix)
			}
		}
		for prefix, route := range wanted {
			if before, ok := sent[prefix]; familyOf(prefix) == f && (!ok || moved || !before.Equal(route)) {
				fresh[prefix] = route
			}
		}
		var err error
		if told[f], err = c.tellFamily(f, hop, gone, fresh); err != nil {
			return err
		}
		hops[f] = hop
	}
	c.mu.Lock()
	c.hops = hops
	clear(c.sent)
	for prefix, route := range wanted {
		if told[familyOf(prefix)] {
			c.sent[prefix] = route
		}
	}
	c.mu.Unlock()
	c.changed()
	return nil
}

func familyOf(p netip.Prefix) bgp.Family {
	if p.Addr().Is4() {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}

// tellFamily tells the router of one family. It reports false where this node has no
// next hop for that: then all that the router has been told is among what is gone.
func (c *connection) tellFamily(f bgp.Family, hop netip.Addr, gone []netip.Prefix, fresh map[netip.Prefix]announce.Route) (told bool, err error) {
	for part := range slices.Chunk(sortedPrefixes(gone), perMessage) {
		m, err := withdraw(f, part)
		if err != nil {
			return false, err
		}
		if err := c.write(m); err != nil {
			return false, err
		}
	}
	if len(fresh) == 0 {
		return true, nil
	}
	if !hop.IsValid() {
		c.update(func(st *Status) {
			st.Note = fmt.Sprintf("routes of %s are not announced: the interface of the session has no address of the family", f)
		})
		return false, nil
	}
	for _, group := range alike(fresh) {
		for part := range slices.Chunk(group.prefixes, perMessage) {
			if err := c.announce(f, hop, group.route, part); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// announce tells the router prefixes in as many messages as it takes. A route whose attributes
// alone are too long for a message is not announced.
func (c *connection) announce(f bgp.Family, hop netip.Addr, r announce.Route, prefixes []netip.Prefix) error {
	m, err := c.announcement(f, hop, r, prefixes)
	if err != nil {
		return err
	}
	b, err := m.Body.Serialize() // of any length
	switch {
	case err == nil && bgp.BGP_HEADER_LENGTH+len(b) <= maxMessage:
		return c.write(m)
	case len(prefixes) > 1:
		half := len(prefixes) / 2
		if err := c.announce(f, hop, r, prefixes[:half]); err != nil {
			return err
		}
		return c.announce(f, hop, r, prefixes[half:])
	case err != nil:
		return fmt.Errorf("write message: %w", err)
	}
	c.update(func(st *Status) {
		st.Note = fmt.Sprintf("%s is not announced: its communities don't fit into a message of %d bytes", prefixes[0], maxMessage)
	})
	return nil
}

// perMessage is how many prefixes of IPv6 fit into a message with as many
// communities as anybody uses.
const perMessage = 150

func sortedPrefixes(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, comparePrefixes)
	return list
}

// group is prefixes that are announced alike, which share a message.
type group struct {
	route    announce.Route
	prefixes []netip.Prefix
}

func alike(routes map[netip.Prefix]announce.Route) []*group {
	var list []*group
	index := map[string]*group{}
	for _, prefix := range slices.SortedFunc(maps.Keys(routes), comparePrefixes) {
		r := routes[prefix]
		key := fmt.Sprint(r.LocalPref, r.Prepend, r.Weight, r.Communities)
		g := index[key]
		if g == nil {
			g = &group{route: r}
			index[key] = g
			list = append(list, g)
		}
		g.prefixes = append(g.prefixes, prefix)
	}
	return list
}

func withdraw(f bgp.Family, prefixes []netip.Prefix) (*bgp.BGPMessage, error) {
	list, err := nlri(prefixes)
	if err != nil {
		return nil, err
	}
	if f == bgp.RF_IPv4_UC {
		return bgp.NewBGPUpdateMessage(list, nil, nil), nil
	}
	attribute, err := bgp.NewPathAttributeMpUnreachNLRI(f, list)
	if err != nil {
		return nil, fmt.Errorf("withdraw prefixes: %w", err)
	}
	return bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{attribute}, nil), nil
}

func nlri(prefixes []netip.Prefix) ([]bgp.PathNLRI, error) {
	list := make([]bgp.PathNLRI, len(prefixes))
	for i, p := range prefixes {
		n, err := bgp.NewIPAddrPrefix(p)
		if err != nil {
			return nil, fmt.Errorf("announce %s: %w", p, err)
		}
		list[i].NLRI = n
	}
	return list, nil
}

// bandwidth is what the link bandwidth community says of one endpoint, in bytes
// per second. Only the proportions count.
const bandwidth = 1_000_000

// announcement is the message that announces prefixes with a route's attributes.
func (c *connection) announcement(f bgp.Family, hop netip.Addr, r announce.Route, prefixes []netip.Prefix) (*bgp.BGPMessage, error) {
	list, err := nlri(prefixes)
	if err != nil {
		return nil, err
	}
	internal := c.agreed.asn == c.peer.LocalASN
	attributes := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)}
	path := c.path(r, internal)
	attributes = append(attributes, path[0])
	classic := f == bgp.RF_IPv4_UC && hop.Is4()
	if classic {
		attribute, err := bgp.NewPathAttributeNextHop(hop)
		if err != nil {
			return nil, fmt.Errorf("next hop %s: %w", hop, err)
		}
		attributes = append(attributes, attribute)
	}
	if internal {
		attributes = append(attributes, bgp.NewPathAttributeLocalPref(localPref(r)))
	}
	if len(r.Communities.Standard) > 0 {
		attributes = append(attributes, bgp.NewPathAttributeCommunities(r.Communities.Standard))
	}
	if !classic {
		attribute, err := bgp.NewPathAttributeMpReachNLRI(f, list, hop)
		if err != nil {
			return nil, fmt.Errorf("next hop %s: %w", hop, err)
		}
		attributes, list = append(attributes, attribute), nil
	}
	if r.Weight > 0 {
		share := bgp.NewLinkBandwidthExtended(twoOctets(c.peer.LocalASN), float32(r.Weight*bandwidth))
		attributes = append(attributes, bgp.NewPathAttributeExtendedCommunities([]bgp.ExtendedCommunityInterface{share}))
	}
	attributes = append(attributes, path[1:]...) // AS4_PATH: attributes go by their numbers
	if len(r.Communities.Large) > 0 {
		var large []*bgp.LargeCommunity
		for _, l := range r.Communities.Large {
			large = append(large, bgp.NewLargeCommunity(l[0], l[1], l[2]))
		}
		attributes = append(attributes, bgp.NewPathAttributeLargeCommunities(large))
	}
	return bgp.NewBGPUpdateMessage(nil, attributes, list), nil
}

// path is the AS path: empty within the own AS, whose routers take a path with their own
// number for a loop. A router that knows numbers of two bytes only gets a longer one in an
// attribute that it hands on (RFC 6793, 4.2.2).
func (c *connection) path(r announce.Route, internal bool) []bgp.PathAttributeInterface {
	if internal {
		return []bgp.PathAttributeInterface{bgp.NewPathAttributeAsPath(nil)}
	}
	const sequence = bgp.BGP_ASPATH_ATTR_TYPE_SEQ
	four := bgp.NewAs4PathParam(sequence, slices.Repeat([]uint32{c.peer.LocalASN}, r.Prepend+1))
	if c.agreed.fourOctets {
		return []bgp.PathAttributeInterface{bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{four})}
	}
	two := bgp.NewAsPathParam(sequence, slices.Repeat([]uint16{twoOctets(c.peer.LocalASN)}, r.Prepend+1))
	list := []bgp.PathAttributeInterface{bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{two})}
	if c.peer.LocalASN > math.MaxUint16 {
		list = append(list, bgp.NewPathAttributeAs4Path([]*bgp.As4PathParam{four}))
	}
	return list
}

// localPref is the route's, or the customary value.
func localPref(r announce.Route) uint32 {
	if r.LocalPref == 0 {
		return 100
	}
	return r.LocalPref
}

// nextHop is this node's address for routes of a family.
func (c *connection) nextHop(f bgp.Family) (netip.Addr, bool) {
	local := localAddress(c)
	if want6 := f == bgp.RF_IPv6_UC; local.Is6() != want6 {
		if !want6 && c.agreed.nextHops {
			return local.WithZone(""), true
		}
		a := sibling(local, want6)
		return a, a.IsValid()
	}
	return local.WithZone(""), true
}
