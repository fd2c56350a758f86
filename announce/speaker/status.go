package speaker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/announce/l2"
	"github.com/fairway-net/fairway/announce/steering"
)

// reasonAssigned is the reason of Events about a node that begins to announce a
// Service, as MetalLB has it.
const reasonAssigned = "nodeAssigned"

// status is what this node knows of all addresses in force.
func (n *Speaker) status() announce.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	report := announce.Report{Node: n.node, Rival: len(n.rival) > 0, Faults: n.faults, Notes: slices.Clone(n.notes)}
	if foreign := n.cluster.Foreign.Senders(time.Now()); len(foreign) > 0 {
		report.Notes = append(report.Notes, foreignText(foreign))
	}
	report.Unfit = n.withOverrides(n.self).Unfit
	report.Addresses = append(report.Addresses, n.onLinks()...)
	if n.layer2 != nil { // looked at afterwards: what is given up meanwhile is among it
		report.Kept, report.Uncounted = n.layer2.Kept()
	}
	if n.steerer != nil && n.self.Unfit != "" { // nobody but this node knows these connections
		if report.Kept == nil {
			report.Kept = map[netip.Addr]int{}
		}
		for address, count := range n.steerer.Kept() {
			report.Kept[address] = max(report.Kept[address], count)
		}
	}
	onLinks := map[netip.Addr]bool{}
	for _, a := range report.Addresses {
		onLinks[a.Address] = true
	}
	for address, why := range n.plan.WhyNot {
		if !onLinks[address] {
			report.Addresses = append(report.Addresses, announce.Address{Address: address, WhyNot: why})
		}
	}
	report.Addresses = append(report.Addresses, n.toRouters(&report)...)
	slices.SortStableFunc(report.Addresses, func(a, b announce.Address) int { return a.Address.Compare(b.Address) })
	return report
}

// onLinks are the addresses that are to be announced on layer 2.
func (n *Speaker) onLinks() []announce.Address {
	var list []announce.Address
	seen := map[string]bool{}
	var links []l2.Status
	if n.layer2 != nil {
		links = n.layer2.Status()
	}
	for _, s := range links {
		planned, ok := n.planned[s.Address] // it may be about to be given up
		if !ok {
			continue
		}
		seen[s.Address.String()] = true
		a := announce.Address{
			Address: s.Address, Protocol: announce.Layer2, Services: planned.Services, Pool: planned.Pool, Interface: s.Interface, Owner: s.Owner,
			Conflict: s.Conflict,
		}
		switch {
		case s.Conflict != "" && s.Since.IsZero():
			a.WhyNot = "the machine with MAC " + s.Conflict + " has the address"
		case s.FoundBy != "":
			a.WhyNot = "node " + s.FoundBy + " has found that another machine has the address"
		case s.Owner == n.node && s.Since.IsZero():
			a.WhyNot = "asking first whether another machine has the address"
		case s.Owner == n.node:
			a.Since = s.Since
		case s.Owner == "":
			a.WhyNot = "listening for other nodes first"
		default:
			a.WhyNot = "node " + s.Owner + " announces it"
		}
		list = append(list, a)
	}
	maps.DeleteFunc(n.planned, func(a netip.Addr, _ announce.Announcement) bool {
		_, ok := n.plan.L2[a]
		return !ok && !seen[a.String()]
	})
	for address, planned := range n.plan.L2 {
		if seen[address.String()] {
			continue
		}
		why := "no interface with a carrier leads to other machines"
		if n.layer2 == nil {
			why = fmt.Sprintf("the key that nodes sign with is not there: Secret %s/%s", n.namespace, announce.KeySecret)
		}
		list = append(list, announce.Address{Address: address, Protocol: announce.Layer2, Services: planned.Services, Pool: planned.Pool, WhyNot: why})
	}
	return list
}

// toRouters are the addresses that are to be announced by BGP, and the sessions
// with routers.
func (n *Speaker) toRouters(report *announce.Report) []announce.Address {
	told := map[string]map[netip.Prefix]bool{}
	ways := map[string]bfd.Status{}
	for _, w := range n.ways.Status() {
		ways[w.Peer] = w
	}
	for _, s := range n.routers.Status() {
		told[s.Peer.Name] = map[netip.Prefix]bool{}
		for _, p := range s.Prefixes {
			told[s.Peer.Name][p] = true
		}
		session := announce.Session{
			Peer: s.Peer.Name, Address: s.Address, ASN: s.ASN, State: string(s.State), Since: s.Since, Prefixes: s.Prefixes,
			LastError: s.LastError, ErrorAt: s.ErrorAt, Note: s.Note,
		}
		if w, ok := ways[s.Peer.Name]; ok {
			session.BFD = w.State.String()
			if w.State != bfd.Up && w.LastError != "" {
				session.BFD += ": " + w.LastError
			}
		}
		report.Sessions = append(report.Sessions, session)
	}
	var list []announce.Address
	for address, planned := range n.plan.BGP {
		a := announce.Address{Address: address, Protocol: announce.BGP, Services: planned.Services, Pool: planned.Pool}
		for _, peer := range planned.Peers {
			if slices.ContainsFunc(planned.Prefixes, func(p netip.Prefix) bool { return told[peer][p] }) {
				a.Peers = append(a.Peers, peer)
			}
		}
		if len(a.Peers) == 0 {
			delete(n.since, address)
			a.WhyNot = "no BGP session with " + strings.Join(planned.Peers, ", ")
		} else {
			if n.since[address].IsZero() {
				n.since[address] = time.Now()
			}
			a.Since, a.Owner = n.since[address], n.node
		}
		list = append(list, a)
	}
	for address := range n.since {
		if _, ok := n.plan.BGP[address]; !ok {
			delete(n.since, address)
		}
	}
	return list
}

// Report is what this node says of all addresses in force; of a nil Speaker, that it announces
// nothing.
func (n *Speaker) Report(node string) announce.Report {
	if n == nil {
		return announce.Report{Node: node, Unfit: "its agent runs without --announce", Off: true}
	}
	return n.status()
}

// ServeStatus answers with the status, for `fairway announce status`.
func (n *Speaker) ServeStatus(w http.ResponseWriter, _ *http.Request) {
	if n == nil {
		http.Error(w, "this agent announces nothing: it runs without --announce", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(n.status()); err != nil {
		return // the client went away
	}
}

// watchWays has BFD watch the ways to the routers whose peers ask for it, and connections led
// to their node on the links to all routers.
func (n *Speaker) watchWays() {
	var sessions []bfd.Session
	var routers []steering.Router
	for _, s := range n.routers.Status() {
		if s.Address.IsValid() {
			routers = append(routers, steering.Router{Address: s.Address, VRF: s.Peer.VRF})
		}
		if s.Peer.BFD.Profile == "" || !s.Address.IsValid() {
			continue
		}
		sessions = append(sessions, bfd.Session{
			Peer: s.Peer.Name, Address: s.Address, Source: s.Peer.Source, VRF: s.Peer.VRF, Settings: s.Peer.BFD,
			MultiHop: s.Peer.MultiHop || s.Peer.Internal && !bgp.IsNeighbor(s.Address),
		})
	}
	n.ways.Set(sessions)
	n.mu.Lock()
	s := n.steerer
	n.mu.Unlock()
	if s != nil {
		s.Set(routers)
	}
}
