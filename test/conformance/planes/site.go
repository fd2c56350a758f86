package planes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// Site is how the node under test is wired: what is changed of a topology before
// cases play on it. It is a file in testdata/sites; see the package comment.
type Site struct {
	Name  string
	Needs []string // features of the kernel, as test/vm names them
	Every bool     // each test run plays on it; otherwise it is left to the check
	Plays []string // cases of the plain topology that it is about: each run that plays on it has them
	// Without is the IP family that the node doesn't have; "" if it has both.
	Without string
	// OneWay says that pods are ports of a bridge which sends no frame back where it came
	// from: in modes that translate in netfilter, no pod reaches itself through a Service.
	OneWay bool
	// Lacks are the modes that can't serve this network, and what they call it
	// (kernel.Network). No case is played in these.
	Lacks map[string]string
	// Ahead says that programs of somebody else's are before the plane's, which ebpf mode
	// tells as a difference from what should be.
	Ahead bool
	// Bridged are the pods that are ports of one bridge.
	Bridged []string
	// Prefers is what the node's masqueraded packets may have as their source beside
	// the node's own addresses.
	Prefers []netip.Addr

	before []siteStep // the cases play
	during []siteStep // the step disturb
}

// siteStep is one line of a site.
type siteStep struct {
	line int
	verb string
	args []string
}

// ParseSite reads a site from its file. Errors name the line.
func ParseSite(name string, data []byte) (*Site, error) {
	site := &Site{Name: name}
	for i, text := range strings.Split(string(data), "\n") {
		fields := strings.Fields(text)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := site.parse(siteStep{line: i + 1, verb: fields[0], args: fields[1:]}); err != nil {
			return nil, fmt.Errorf("site %s: line %d: %w", name, i+1, err)
		}
	}
	return site, nil
}

func (site *Site) parse(s siteStep) error {
	verb, known := siteVerbs()[s.verb]
	if !known || len(s.args) < verb.least || verb.most > 0 && len(s.args) > verb.most {
		return fmt.Errorf("%q: no step, or not with %d arguments", s.verb, len(s.args))
	}
	switch s.verb {
	case "needs":
		site.Needs = s.args
	case "every":
		site.Every = true
	case "plays":
		site.Plays = s.args
	case "lacks":
		if site.Lacks == nil {
			site.Lacks = map[string]string{}
		}
		site.Lacks[s.args[0]] = strings.Join(s.args[1:], " ")
	case "oneway":
		site.OneWay = true
	case "ahead":
		site.Ahead = true
	case "bridged":
		site.Bridged = s.args
	case "without":
		site.Without = s.args[0]
	case "source":
		a, err := netip.ParseAddr(s.args[0])
		if err != nil {
			return err
		}
		site.Prefers = append(site.Prefers, a)
	case "during":
		step := siteStep{line: s.line, verb: s.args[0], args: s.args[1:]}
		if siteVerbs()[step.verb].play == nil {
			return fmt.Errorf("%q can't be done during a case", step.verb)
		}
		site.during = append(site.during, step)
	default:
		site.before = append(site.before, s)
	}
	return nil
}

// siteVerb is a kind of step, and how many arguments it takes; most is 0 where there may be
// many. Those without a function are about the site itself.
type siteVerb struct {
	least, most int
	play        func(s *Topology, args []string) error
}

// siteVerbs are the steps of sites.
func siteVerbs() map[string]siteVerb {
	return map[string]siteVerb{
		"needs":   {1, 0, nil},
		"every":   {0, 0, nil},
		"plays":   {1, 0, nil},
		"lacks":   {2, 0, nil},
		"oneway":  {0, 0, nil},
		"ahead":   {0, 0, nil},
		"bridged": {1, 0, nil},
		"without": {1, 1, nil},
		"source":  {1, 1, nil},
		"during":  {2, 0, nil},
		"on":      {2, 0, (*Topology).siteCommand},
		"lower":   {1, 1, (*Topology).lowerUplink},
		"upper":   {1, 1, (*Topology).upperUplink},
		"sysctl":  {3, 3, (*Topology).siteSysctl},
		"capture": {2, 2, (*Topology).capture},
		"program": {4, 4, (*Topology).foreignProgram},
		"drop4":   {1, 1, (*Topology).dropIPv4},
		"fill":    {1, 1, (*Topology).fillConntrack},
		"team":    {3, 3, (*Topology).team},
		"reach":   {2, 2, (*Topology).awaitReach},

		"wireguard": {3, 3, (*Topology).wireGuard},
	}
}

// become wires a topology as a site says.
func (s *Topology) become(site *Site) error {
	s.site = site
	return s.playSite(site.before)
}

// disturb does what the site says happens while connections are under way.
func (s *Topology) disturb() error {
	if s.site == nil {
		return nil
	}
	return s.playSite(s.site.during)
}

func (s *Topology) playSite(steps []siteStep) error {
	for _, step := range steps {
		if err := siteVerbs()[step.verb].play(s, step.args); err != nil {
			return fmt.Errorf("site %s: line %d: %s: %w", s.site.Name, step.line, step.verb, err)
		}
	}
	return nil
}

// siteHost is a host by its name, or the underlay.
func (s *Topology) siteHost(name string) (*topology.Host, error) {
	if name == "underlay" {
		return s.lab.Underlay(), nil
	}
	h, known := s.hosts[name]
	if !known {
		return nil, fmt.Errorf("host %q: must be underlay, %s", name, strings.Join(hostNames(), ", "))
	}
	return h, nil
}

// siteCommand runs "HOST COMMAND...". {HOST} stands for the name of a host's network
// namespace.
func (s *Topology) siteCommand(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	words := slices.Clone(args[1:])
	for i, w := range words {
		if name, ok := strings.CutPrefix(w, "{"); ok && len(name) > 1 && strings.HasSuffix(name, "}") {
			other, err := s.siteHost(strings.TrimSuffix(name, "}"))
			if err != nil {
				return err
			}
			words[i] = other.NS.Name()
		}
	}
	var out strings.Builder
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := on.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s on %s: %w: %s", strings.Join(words, " "), args[0], err, strings.TrimSpace(out.String()))
	}
	return nil
}

// siteSysctl sets "HOST PATH VALUE".
func (s *Topology) siteSysctl(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	return on.Do(func() error { return os.WriteFile("/proc/sys/"+args[1], []byte(args[2]), 0) })
}

// uplink is what an interface had that got another name.
type uplink struct {
	addresses []netlink.Addr
	routes    []netlink.Route
}

// lowerUplink calls a host's eth0 port0, and takes its addresses and routes away for
// upperUplink.
func (s *Topology) lowerUplink(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	h, err := on.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(topology.NodeInterface)
	if err != nil {
		return err
	}
	var had uplink
	addresses, err := h.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			had.addresses = append(had.addresses, a)
		}
	}
	routes, err := h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: l.Attrs().Index}, netlink.RT_FILTER_OIF)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if r.Protocol != unix.RTPROT_KERNEL {
			had.routes = append(had.routes, r)
		}
	}
	if s.uplinks == nil {
		s.uplinks = map[string]uplink{}
	}
	s.uplinks[args[0]] = had
	for _, a := range had.addresses {
		if err := h.AddrDel(l, &a); err != nil {
			return fmt.Errorf("delete address %s: %w", a.IPNet, err)
		}
	}
	return errors.Join(h.LinkSetDown(l), h.LinkSetName(l, "port0"), h.LinkSetUp(l))
}

// upperUplink gives what lowerUplink has taken away to the interface that is eth0 now.
func (s *Topology) upperUplink(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	h, err := on.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(topology.NodeInterface)
	if err != nil {
		return err
	}
	if err := errors.Join(on.Do(setSysctls), h.LinkSetUp(l)); err != nil {
		return err
	}
	had := s.uplinks[args[0]]
	for _, a := range had.addresses {
		again := &netlink.Addr{IPNet: a.IPNet}
		if a.IP.To4() == nil {
			again.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrAdd(l, again); err != nil {
			return fmt.Errorf("add address %s: %w", a.IPNet, err)
		}
	}
	for _, r := range had.routes {
		again := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: r.Dst, Gw: r.Gw, Flags: r.Flags & int(netlink.FLAG_ONLINK)}
		if err := h.RouteReplace(again); err != nil {
			return fmt.Errorf("add route %s: %w", r, err)
		}
	}
	if args[0] == NodeName {
		return s.awaitAddress()
	}
	return nil
}

// capture listens to all packets of "HOST INTERFACE", as tcpdump does, until the
// topology is closed.
func (s *Topology) capture(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	return on.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(networkOrder(unix.ETH_P_ALL)))
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		s.closers = append(s.closers, func() error { return unix.Close(fd) })
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		l, err := h.LinkByName(args[1])
		if err != nil {
			return err
		}
		return unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(l.Attrs().Index), Type: unix.PACKET_MR_PROMISC})
	})
}

// foreignProgram attaches a program by tcx that looks at packets and lets all of them go on:
// "HOST INTERFACE ingress|egress first|last".
func (s *Topology) foreignProgram(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, -1), asm.Return(), // TCX_NEXT
	}})
	if err != nil {
		return err
	}
	defer p.Close()
	sides := map[string]ebpf.AttachType{"ingress": ebpf.AttachTCXIngress, "egress": ebpf.AttachTCXEgress}
	anchors := map[string]link.Anchor{"first": link.Head(), "last": link.Tail()}
	return on.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		l, err := h.LinkByName(args[1])
		if err != nil {
			return err
		}
		at, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: p, Attach: sides[args[2]], Anchor: anchors[args[3]]})
		if err != nil {
			return err
		}
		s.closers = append(s.closers, at.Close)
		return nil
	})
}

// dropIPv4 takes a host's IPv4 addresses away, except those of its loopback.
func (s *Topology) dropIPv4(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	h, err := on.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	addresses, err := h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if a.IP.IsLoopback() {
			continue
		}
		l, err := h.LinkByIndex(a.LinkIndex)
		if err != nil {
			return err
		}
		if err := h.AddrDel(l, &a); err != nil {
			return fmt.Errorf("delete address %s: %w", a.IPNet, err)
		}
	}
	return nil
}

// awaitReach waits until "HOST ADDRESS" is answered: somebody refuses a datagram.
func (s *Topology) awaitReach(args []string) error {
	on, err := s.siteHost(args[0])
	if err != nil {
		return err
	}
	to, err := netip.ParseAddr(args[1])
	if err != nil {
		return err
	}
	const closed = 9
	for deadline := time.Now().Add(waitTimeout); ; {
		err := on.Do(func() error {
			conn, err := net.Dial("udp", netip.AddrPortFrom(to, closed).String())
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
				return err
			}
			if _, err := conn.Write([]byte{0}); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1))
			return err
		})
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s doesn't answer %s: %w", to, args[0], err)
		}
	}
}

// sources are addresses of the node beside those that it has everywhere.
func (s *Topology) sources() []netip.Addr {
	if s == nil || s.site == nil {
		return nil
	}
	return s.site.Prefers
}

// lacksFamily reports whether the site's node doesn't have the family of an address.
func (site *Site) lacksFamily(a netip.Addr) bool {
	return site != nil && (site.Without == "IPv4" && a.Is4() || site.Without == "IPv6" && a.Is6())
}

// fillConntrack fills the node's conntrack table until so many entries are free.
func (s *Topology) fillConntrack(args []string) error {
	free, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("%q: must be a number of entries", args[0])
	}
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return err
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	h, err := s.node.NS.Netlink(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer h.Close()
	for n := range most - free {
		there := netlink.IPTuple{
			SrcIP: netip.AddrFrom4([4]byte{192, 0, 2, byte(n >> 16)}).AsSlice(), DstIP: netip.AddrFrom4([4]byte{192, 0, 2, 255}).AsSlice(),
			Protocol: unix.IPPROTO_UDP, SrcPort: uint16(n), DstPort: 9,
		}
		back := there
		back.SrcIP, back.DstIP, back.SrcPort, back.DstPort = there.DstIP, there.SrcIP, there.DstPort, there.SrcPort
		f := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 600, Forward: there, Reverse: back}
		if err := h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
			return fmt.Errorf("entry %d of %d: %w", n+1, most-free, err)
		}
	}
	return nil
}
