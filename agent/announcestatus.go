package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/announce/l2"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
)

// reasonAssigned is the reason of Events about a node that begins to announce a
// Service, as MetalLB has it.
const reasonAssigned = "nodeAssigned"

// status is what this node knows of all addresses in force.
func (n *announcing) status() announce.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	report := announce.Report{Node: n.node, Faults: n.faults, Notes: n.notes}
	for address, why := range n.plan.WhyNot {
		report.Addresses = append(report.Addresses, announce.Address{Address: address, WhyNot: why})
	}
	report.Addresses = append(report.Addresses, n.onLinks()...)
	report.Addresses = append(report.Addresses, n.toRouters(&report)...)
	slices.SortStableFunc(report.Addresses, func(a, b announce.Address) int { return a.Address.Compare(b.Address) })
	return report
}

// onLinks are the addresses that are to be announced on layer 2.
func (n *announcing) onLinks() []announce.Address {
	var list []announce.Address
	seen := map[string]bool{}
	var links []l2.Status
	if n.layer2 != nil {
		links = n.layer2.Status()
	}
	for _, s := range links {
		planned, ok := n.plan.L2[s.Address]
		if !ok {
			continue
		}
		seen[s.Address.String()] = true
		a := announce.Address{
			Address: s.Address, Protocol: announce.Layer2, Services: planned.Services, Pool: planned.Pool, Interface: s.Interface, Owner: s.Owner,
		}
		switch {
		case s.Conflict != "":
			a.WhyNot = "the machine with MAC " + s.Conflict + " has the address"
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
	for address, planned := range n.plan.L2 {
		if seen[address.String()] {
			continue
		}
		why := "no interface with a carrier leads to other machines"
		if n.layer2 == nil {
			why = fmt.Sprintf("the key that nodes sign with is not there: Secret %s/%s", n.namespace, announceSecret)
		}
		list = append(list, announce.Address{Address: address, Protocol: announce.Layer2, Services: planned.Services, Pool: planned.Pool, WhyNot: why})
	}
	return list
}

// toRouters are the addresses that are to be announced by BGP, and the sessions
// with routers.
func (n *announcing) toRouters(report *announce.Report) []announce.Address {
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

// serveStatus answers with the status, for `fairway announce status`.
func (n *announcing) serveStatus(w http.ResponseWriter, _ *http.Request) {
	if n == nil {
		http.Error(w, "this agent announces nothing: it runs without --announce", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(n.status()); err != nil {
		return // the client went away
	}
}

// watchWays has BFD watch the ways to the routers whose peers ask for it.
func (n *announcing) watchWays() {
	var sessions []bfd.Session
	for _, s := range n.routers.Status() {
		if s.Peer.BFD.Profile == "" || !s.Address.IsValid() {
			continue
		}
		sessions = append(sessions, bfd.Session{
			Peer: s.Peer.Name, Address: s.Address, Source: s.Peer.Source, VRF: s.Peer.VRF, Settings: s.Peer.BFD,
			MultiHop: s.Peer.MultiHop || s.Peer.Internal && !bgp.IsNeighbor(s.Address),
		})
	}
	n.ways.Set(sessions)
}

// reportDelay merges changes of many addresses into one look.
const reportDelay = 100 * time.Millisecond

// keepReported keeps this node's ServiceL2Statuses, ServiceBGPStatuses and
// ConfigurationState at what is announced, until ctx is done.
func (n *announcing) keepReported(ctx context.Context) {
	kinds := []*statusKind{
		{n: n, resource: "servicel2statuses", prefix: "l2-", protocol: announce.Layer2},
		{n: n, resource: "servicebgpstatuses", prefix: "bgp-", protocol: announce.BGP},
	}
	stated := "not yet"
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		}
		n.watchWays()
		select {
		case <-ctx.Done():
			return
		case <-time.After(reportDelay):
		}
		report := n.status()
		for _, k := range kinds {
			k.write(ctx, report)
		}
		if text := fmt.Sprint(report.Faults, report.Notes); text != stated {
			if err := n.writeState(ctx, strings.Join(report.Faults, "; "), strings.Join(report.Notes, "; ")); err != nil {
				n.log.Warn("no ConfigurationState written", "err", err)
				continue
			}
			stated = text
		}
	}
}

func (n *announcing) patchStatus(ctx context.Context, resource, name string, status any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return n.metallb.V1beta1.Patch(types.MergePatchType).Namespace(n.namespace).Resource(resource).
		Name(name).SubResource("status").Body(body).Do(ctx).Error()
}

// writeState writes what of the configuration this node can't do.
func (n *announcing) writeState(ctx context.Context, faults, notes string) error {
	name := "speaker-" + n.node
	state := &v1beta1.ConfigurationState{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: n.namespace,
		Labels: map[string]string{v1beta1.LabelComponent: "speaker", v1beta1.LabelNodeName: n.node},
	}}
	err := n.metallb.V1beta1.Post().Namespace(n.namespace).Resource("configurationstates").Body(state).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // MetalLB before 0.16 has no such kind
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ConfigurationState %s: %w", name, err)
	}
	status := map[string]any{"result": v1beta1.ConfigurationValid, "errorSummary": nil}
	condition := metav1.Condition{Type: "AnnouncementsValid", Status: metav1.ConditionTrue, Reason: "Valid", Message: cmp.Or(notes, "all is in force")}
	if faults != "" {
		status["result"], status["errorSummary"] = v1beta1.ConfigurationInvalid, faults
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "InvalidConfiguration", faults
	}
	var conditions []metav1.Condition
	meta.SetStatusCondition(&conditions, condition)
	status["conditions"] = conditions
	return n.patchStatus(ctx, "configurationstates", name, status)
}

// reportNormal is report for what is no fault.
func (e *events) reportNormal(n notice) {
	n.kind, n.local = corev1.EventTypeNormal, true
	select {
	case e.queue <- n:
	default: // what calls this has logged it
	}
}
