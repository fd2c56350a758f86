package speaker

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/l2"
)

// decide makes the plan anew and has it carried out. It reports whether anything
// was withdrawn from routers.
func (n *Speaker) decide() (withdrawn bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.missing) > 0 {
		return false
	}
	config, faults := announce.Read(n.objects)
	if !n.knowsClusterIPs(config.ClusterIPs()) {
		return false
	}
	served, left := n.serves()
	plan := n.planFor(config, n.self, served)
	faults = append(faults, plan.Faults...)
	maps.Copy(plan.WhyNot, left)
	if n.layer2 != nil {
		n.layer2.StandBy(placements(announce.StandBy(config, n.self)))
		n.layer2.Expect(placements(n.planFor(config, n.self, n.upcoming()).L2))
		n.layer2.OwnAddresses(n.takesAddresses())
		n.layer2.Set(placements(plan.L2), n.anywhere(served, n.ofRouters(config, served, plan)))
	}
	maps.Copy(n.planned, plan.L2)
	withdrawn = n.routers.Routes(plan.Routes)
	if len(n.rival) > 0 && n.self.Unfit != "" {
		plan.Peers = nil // one of the two would be refused by the router
	}
	n.routers.Peers(plan.Peers)
	n.tell(faults, plan.Problems)
	n.plan, n.faults, n.notes = plan, faults, config.Notes
	signal(n.changed)
	return withdrawn
}

func placements(announced map[netip.Addr]announce.Announcement) map[netip.Addr]l2.Placement {
	list := make(map[netip.Addr]l2.Placement, len(announced))
	for address, a := range announced {
		list[address] = l2.Placement{Interfaces: a.Interfaces, Weight: a.Weight, Weighted: a.Weighted}
	}
	return list
}

// upcoming are the addresses of the next table that aren't in force yet, as if they had
// endpoints: these may come while the link is asked whether somebody has the address.
func (n *Speaker) upcoming() map[netip.Addr]announce.Served {
	list := map[netip.Addr]announce.Served{}
	for address, s := range n.next.Served() {
		if n.inForce.Has(address) {
			continue
		}
		s.Ready, s.Idle = slices.Concat(s.Ready, s.Idle), nil
		list[address] = s
	}
	return list
}

// serves are the addresses that are in force and are to stay, and of others of the table why
// they aren't.
func (n *Speaker) serves() (served map[netip.Addr]announce.Served, left map[netip.Addr]string) {
	served, left = announce.Both(n.inForce.Served(), n.next.Served()), map[netip.Addr]string{}
	for address, why := range n.leftOut {
		if _, ok := served[address]; ok {
			left[address] = why
			delete(served, address)
		}
	}
	return served, left
}

// planFor is what this node announces if its Node is like that.
func (n *Speaker) planFor(config *announce.Config, self announce.Node, served map[netip.Addr]announce.Served) announce.Plan {
	if table := n.inForce.Table(); table != nil {
		self.ServiceRanges = table.Settings.Reserved
	}
	return announce.Decide(config, self, served, func(service string) announce.Service { return n.services[service] })
}

// withOverrides is a Node while MetalLB's speakers run on it, while this machine is out, and when nothing is to be announced any more.
func (n *Speaker) withOverrides(self announce.Node) announce.Node {
	if len(n.rival) > 0 {
		self.Unfit = "a MetalLB speaker runs on this node and announces"
	}
	if n.refused {
		self.Unfit = "the API server refuses this machine's credential: it was revoked, or has expired"
	}
	if n.ends {
		self.Unfit = "the machine shuts down, or the agent announces nothing any more"
	}
	return self
}

// ofRouters are the addresses that routers are told of by this node, if it is fit. Who goes
// on with their connections is found out on the links to routers (announce/steering).
func (n *Speaker) ofRouters(config *announce.Config, served map[netip.Addr]announce.Served, plan announce.Plan) map[netip.Addr]announce.BGPAnnouncement {
	if n.self.Unfit == "" || len(plan.Peers) == 0 {
		return plan.BGP
	}
	fit := n.self
	fit.Unfit = ""
	return n.planFor(config, fit, served).BGP
}

// anywhere lists the addresses that others may reach here, with whether their connections
// go on at any node without the links' doing. An address that has no endpoint on any node isn't
// among them: another node would take it over for a moment only.
func (n *Speaker) anywhere(served map[netip.Addr]announce.Served, ofRouters map[netip.Addr]announce.BGPAnnouncement) map[netip.Addr]bool {
	carriesOn := n.carriesOn != nil && n.carriesOn()
	list := map[netip.Addr]bool{}
	for address, s := range served {
		if !s.ClusterIP && (len(s.Ready) > 0 || s.ByNode) {
			_, routed := ofRouters[address]
			list[address] = carriesOn && s.Anywhere || routed && n.steerer != nil
		}
	}
	return list
}

// knowsClusterIPs has cluster IPs followed if they are announced, and no longer if
// they aren't. It reports false as long as their Services aren't known.
func (n *Speaker) knowsClusterIPs(wanted bool) bool {
	if n.inForce.ClusterIPs == wanted {
		return true
	}
	for _, t := range []*announce.Tracker{&n.inForce, &n.next} {
		table := t.Table()
		*t = announce.Tracker{ClusterIPs: wanted}
		if table != nil {
			t.Update(table)
		}
	}
	if wanted {
		n.missing[partServices] = true
		signal(n.servicesWanted)
	}
	return !wanted
}

// reasonFailed is the reason of Events about what can't be announced as asked, as
// MetalLB has it.
const reasonFailed = "announceFailed"

// tell logs what is new of what can't be announced as asked, and has Events written.
func (n *Speaker) tell(faults []string, services map[string][]string) {
	for _, f := range faults {
		if !slices.Contains(n.faults, f) {
			n.log.Warn("not announced as configured", "reason", f)
			n.events.ReportNode(reasonFailed, f)
		}
	}
	for name, problems := range services {
		text := strings.Join(problems, "; ")
		if n.told[name] == text {
			continue
		}
		n.told[name] = text
		namespace, service, _ := strings.Cut(name, "/")
		n.events.ReportService(types.NamespacedName{Namespace: namespace, Name: service}, reasonFailed, text)
	}
}
