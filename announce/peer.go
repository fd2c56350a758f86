package announce

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
)

// Peer is a router that this node holds a BGP session with. Two that are equal
// need no new session.
type Peer struct {
	Name string
	// LocalASN is this side's AS number, ASN the router's. An ASN of 0 accepts the
	// own number (Internal), or any other.
	LocalASN, ASN uint32
	Internal      bool // iBGP
	// Address of the router, or the Interface on which it is the only neighbor.
	Address   netip.Addr
	Interface string
	Port      uint16
	Source    netip.Addr // this side's address; the kernel's choice if not valid
	RouterID  netip.Addr // an address of the node if not valid
	HoldTime  time.Duration
	Keepalive time.Duration // a third of the agreed hold time if 0
	Connect   time.Duration // between attempts
	Password  string        // of TCP MD5
	MultiHop  bool
	VRF       string // device
	// BothFamilies has one session carry routes of both families; otherwise it
	// carries those of its own addresses' family.
	BothFamilies    bool
	GracefulRestart bool
	BFD             BFD
}

// BFD are the settings of a peer's BFD session.
type BFD struct {
	Profile           string // "" is no BFD
	Receive, Transmit time.Duration
	Multiplier        uint8
	Passive           bool
	MinimumTTL        uint8 // of packets of multi-hop sessions
}

// peer is a Peer with the nodes that it is for.
type peer struct {
	Peer
	nodes []labels.Selector
}

// The values that MetalLB's API gives what is not set.
const (
	defaultPort      = 179
	defaultHoldTime  = 90 * time.Second
	defaultConnect   = 5 * time.Second
	leastHoldTime    = 3 * time.Second
	defaultInterval  = 300 * time.Millisecond
	defaultMultiply  = 3
	defaultMinimum   = 254
	leastInterval    = 10 * time.Millisecond
	greatestInterval = time.Minute
)

// peer reads a BGPPeer. ok is false if no session can be held with it.
func (r *reader) peer(o *v1beta2.BGPPeer, profiles map[string]*v1beta1.BFDProfile, passwords map[string]string) (p peer, ok bool) {
	object, s := "BGPPeer "+o.Name, &o.Spec
	ok = true
	fault := func(format string, args ...any) {
		r.problem(object, fmt.Sprintf(format, args...))
		ok = false
	}
	p = peer{Peer: Peer{
		Name: o.Name, LocalASN: cmp.Or(s.LocalASN, s.MyASN), ASN: s.ASN, Interface: s.Interface,
		Port: cmp.Or(s.Port, defaultPort), HoldTime: duration(s.HoldTime, defaultHoldTime),
		Keepalive: duration(s.KeepaliveTime, 0), Connect: max(duration(s.ConnectTime, defaultConnect), time.Second),
		MultiHop: s.EBGPMultiHop, VRF: s.VRFName, BothFamilies: s.DualStackAddressFamily, GracefulRestart: s.EnableGracefulRestart,
	}, nodes: r.selectors(object, "nodeSelectors", s.NodeSelectors)}
	if p.LocalASN == 0 {
		fault("spec.myASN: must be given")
	}
	switch {
	case s.ASN == 0 && s.DynamicASN == "":
		fault("spec.peerASN: either this or spec.dynamicASN must be given")
	case s.ASN != 0 && s.DynamicASN != "":
		fault("spec.dynamicASN: can't be given together with spec.peerASN")
	case s.DynamicASN != "" && s.DynamicASN != v1beta2.InternalASN && s.DynamicASN != v1beta2.ExternalASN:
		fault("spec.dynamicASN: %q: must be internal or external", s.DynamicASN)
	}
	p.Internal = s.DynamicASN == v1beta2.InternalASN || s.ASN == p.LocalASN
	switch {
	case s.Address == "" && s.Interface == "":
		fault("spec.peerAddress: either this or spec.interface must be given")
	case s.Address != "" && s.Interface != "":
		fault("spec.interface: can't be given together with spec.peerAddress")
	case s.Address != "":
		p.Address = address(s.Address, "spec.peerAddress", fault)
	}
	p.Source = address(s.SrcAddress, "spec.sourceAddress", fault)
	if p.Source.IsValid() && p.Address.IsValid() && p.Source.Is4() != p.Address.Is4() {
		fault("spec.sourceAddress: is of another IP family than spec.peerAddress")
	}
	if p.RouterID = address(s.RouterID, "spec.routerID", fault); p.RouterID.IsValid() && !p.RouterID.Is4() {
		fault("spec.routerID: %q: must be in the form of an IPv4 address", s.RouterID)
	}
	if p.HoldTime != 0 && p.HoldTime < leastHoldTime || p.HoldTime > 65535*time.Second {
		fault("spec.holdTime: %v: must be 0, or from 3s to 65535s", p.HoldTime)
	}
	if p.Keepalive < 0 || p.HoldTime > 0 && p.Keepalive > p.HoldTime {
		fault("spec.keepaliveTime: %v: must not be longer than spec.holdTime", p.Keepalive)
	}
	if p.Internal && s.EBGPMultiHop {
		fault("spec.ebgpMultiHop: is for peers of other AS numbers")
	}
	p.Password = r.password(o, passwords, fault)
	p.BFD = r.bfd(o, profiles)
	return p, ok
}

func duration(given *metav1.Duration, otherwise time.Duration) time.Duration {
	if given == nil {
		return otherwise
	}
	return given.Duration
}

func address(text, field string, fault func(string, ...any)) netip.Addr {
	if text == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		fault("%s: %q is no IP address", field, text)
	}
	return a.Unmap()
}

// password is given in the object or by a Secret. A peer whose Secret is missing
// gets no session: it would refuse one without a password.
func (r *reader) password(o *v1beta2.BGPPeer, passwords map[string]string, fault func(string, ...any)) string {
	name := o.Spec.PasswordSecret.Name
	if name == "" {
		return o.Spec.Password
	}
	if o.Spec.Password != "" {
		fault("spec.passwordSecret: can't be given together with spec.password")
		return ""
	}
	if space := o.Spec.PasswordSecret.Namespace; space != "" && o.Namespace != "" && space != o.Namespace {
		fault("spec.passwordSecret.namespace: must be %s, the BGPPeer's own", o.Namespace)
		return ""
	}
	password, ok := passwords[name]
	if !ok {
		fault("spec.passwordSecret: there is no Secret %s of type kubernetes.io/basic-auth with a password", name)
	}
	return password
}

// bfd reads the profile that a peer names. A peer whose profile is missing or
// makes no sense has a session without BFD, as if it named none: it answers later
// to failures, but it works.
func (r *reader) bfd(o *v1beta2.BGPPeer, profiles map[string]*v1beta1.BFDProfile) BFD {
	name := o.Spec.BFDProfile
	if name == "" {
		return BFD{}
	}
	profile := profiles[name]
	if profile == nil {
		r.problem("BGPPeer "+o.Name, fmt.Sprintf("spec.bfdProfile: there is no BFDProfile %s; the session is held without BFD", name))
		return BFD{}
	}
	b, problems := readBFD(profile)
	if len(problems) > 0 {
		return BFD{} // the profile's faults are told once, by profiles
	}
	return b
}

// readBFD reads a profile, and says what is wrong with it.
func readBFD(o *v1beta1.BFDProfile) (b BFD, problems []string) {
	s := &o.Spec
	interval := func(field string, given *uint32) time.Duration {
		if given == nil {
			return defaultInterval
		}
		d := time.Duration(*given) * time.Millisecond
		if d < leastInterval || d > greatestInterval {
			problems = append(problems, fmt.Sprintf("spec.%s: %d: must be from 10 to 60000 milliseconds", field, *given))
		}
		return d
	}
	number := func(field string, given *uint32, otherwise, least, greatest uint32) uint8 {
		n := otherwise
		if given != nil {
			n = *given
		}
		if n < least || n > greatest {
			problems = append(problems, fmt.Sprintf("spec.%s: %d: must be from %d to %d", field, n, least, greatest))
		}
		return uint8(n)
	}
	b = BFD{
		Profile: o.Name, Receive: interval("receiveInterval", s.ReceiveInterval), Transmit: interval("transmitInterval", s.TransmitInterval),
		Multiplier: number("detectMultiplier", s.DetectMultiplier, defaultMultiply, 2, 255),
		MinimumTTL: number("minimumTtl", s.MinimumTTL, defaultMinimum, 1, 254),
		Passive:    s.PassiveMode != nil && *s.PassiveMode,
	}
	return b, problems
}

// profiles says what is wrong with BFDProfiles, whoever uses them.
func (r *reader) profiles(objects map[string]*v1beta1.BFDProfile) {
	for _, o := range sorted(objects) {
		_, problems := readBFD(o)
		for _, p := range problems {
			r.problem("BFDProfile "+o.Name, p+"; sessions are held without BFD")
		}
		if o.Spec.EchoInterval != nil {
			r.notes = append(r.notes, "BFDProfile "+o.Name+": spec.echoInterval: not used; there are no echo packets")
		}
		if o.Spec.EchoMode != nil && *o.Spec.EchoMode {
			r.notes = append(r.notes, "BFDProfile "+o.Name+": spec.echoMode: not used; control packets detect failures in its place")
		}
	}
}
