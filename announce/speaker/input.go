package speaker

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/l2"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Intend is told of a table before it is applied, and says which one to apply now: what the
// table no longer has is withdrawn first, and is in force for a moment yet. Config.Again is
// called when that is over.
func (n *Speaker) Intend(table *model.Table) *model.Table {
	if n == nil || table == nil {
		return table
	}
	n.mu.Lock()
	changed := n.next.Update(table)
	if takes := n.takesAddresses(); changed || takes != n.quiet {
		n.beQuiet(takes)
	}
	n.mu.Unlock()
	told := changed && n.decide()
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if changed {
		inForce, next := n.inForce.Served(), n.next.Served()
		n.held.forget(inForce, next)
		if told && n.held.begin(withdrawn(inForce, next), now) && n.again != nil {
			time.AfterFunc(withdrawPause, n.again)
		}
	}
	return n.held.keepIn(table, &n.inForce, now)
}

func (n *Speaker) takesAddresses() bool { return n.takes != nil && n.takes() }

// beQuiet keeps the kernel from answering for addresses of the next table, if a data plane is
// about to make them the node's own, whatever becomes of announcing.
func (n *Speaker) beQuiet(takes bool) {
	n.quiet = takes
	if n.layer2 != nil {
		n.layer2.OwnAddresses(takes)
	}
	if !takes || len(n.next.Served()) == 0 {
		return
	}
	complaint := ""
	if err := l2.AnswerForOwn(); err != nil {
		complaint = err.Error()
	}
	if complaint != "" && complaint != n.complaint {
		n.log.Warn("this node may answer for addresses that others announce", "error", complaint)
	}
	n.complaint = complaint
}

// Applied is told of a table that is in force now, but for what is left out.
func (n *Speaker) Applied(table *model.Table, leftOut []kernel.LeftOut) {
	if n == nil {
		return
	}
	left := map[netip.Addr]string{}
	for _, l := range leftOut {
		if l.Frontend.Addr.IsValid() {
			left[l.Frontend.Addr] = l.Error()
		}
	}
	n.mu.Lock()
	before := n.inForce.Table()
	changed := n.inForce.Update(table)
	changed = before != nil && !slices.Equal(before.Settings.Reserved, table.Settings.Reserved) || changed
	changed = !maps.Equal(left, n.leftOut) || changed
	n.leftOut = left
	changed = n.missing[partTable] || changed
	delete(n.missing, partTable)
	n.mu.Unlock()
	if changed {
		n.decide()
	}
}

// SetService takes in what a Service says of announcing.
func (n *Speaker) SetService(s *corev1.Service) {
	if n == nil {
		return
	}
	name := s.Namespace + "/" + s.Name
	next := announce.Service{Labels: s.Labels, Annotations: map[string]string{}}
	for _, annotation := range []string{announce.AnnotationPrepend, announce.AnnotationCommunities} {
		if text, ok := s.Annotations[annotation]; ok {
			next.Annotations[annotation] = text
		}
	}
	n.mu.Lock()
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(s.Spec.ExternalIPs) == 0 && !n.inForce.ClusterIPs {
		n.mu.Unlock()
		return
	}
	before := n.services[name]
	n.services[name] = next
	n.askFor(s)
	n.mu.Unlock()
	if !labels.Equals(before.Labels, next.Labels) || !maps.Equal(before.Annotations, next.Annotations) {
		signal(n.wake)
	}
}

// askFor has links asked whether somebody has the addresses that a new Service wants, while
// it is given them.
func (n *Speaker) askFor(s *corev1.Service) {
	wanted, err := v1beta1.RequestedAddresses(s)
	isNew := s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
	if err != nil || len(wanted) == 0 || !isNew || n.layer2 == nil || len(n.missing) > 0 {
		return
	}
	asked := map[netip.Addr]announce.Served{}
	for _, a := range wanted {
		if !n.next.Has(a) {
			asked[a] = announce.Served{Ready: []string{s.Namespace + "/" + s.Name}}
		}
	}
	config, _ := announce.Read(n.objects)
	n.layer2.Expect(placements(n.planFor(config, n.self, asked).L2))
}

// DeleteService takes in that there is no such Service any more.
func (n *Speaker) DeleteService(key types.NamespacedName) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.services, key.String())
	delete(n.told, key.String())
}

// SetNode takes in what the Node says of announcing, and whether load balancers may
// send traffic to it.
func (n *Speaker) SetNode(node *corev1.Node, eligible bool) {
	if n == nil {
		return
	}
	n.setSelf(announce.Node{Labels: node.Labels, Unfit: unfit(node, eligible, n.options.IgnoreExcluded), PodRanges: podRanges(node)})
}

// DeleteNode takes in that this machine has no Node any more: it is out, and announces nothing.
func (n *Speaker) DeleteNode() {
	if n != nil {
		n.setSelf(announce.Node{Unfit: "the Node of this machine was deleted"})
	}
}

func (n *Speaker) setSelf(next announce.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = next
	n.reconsider()
}

// reconsider has this node announce as its Node says and as this machine may, where either has changed.
func (n *Speaker) reconsider() {
	next := n.withOverrides(n.known)
	if n.moving { // which ends with what is right by then
		return
	}
	if next.Unfit != n.self.Unfit || !slices.Equal(next.PodRanges, n.self.PodRanges) || !labels.Equals(next.Labels, n.self.Labels) {
		n.become(next)
	}
}

func podRanges(node *corev1.Node) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}

// unfit says why a node must not announce; "" if it may.
func unfit(node *corev1.Node, eligible, ignoreExcluded bool) string {
	if _, drained := node.Labels[announce.LabelDrained]; drained {
		return "the node is drained: it has the label " + announce.LabelDrained
	}
	if _, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]; excluded && !ignoreExcluded {
		return "the node has the label " + corev1.LabelNodeExcludeBalancers
	}
	if !eligible {
		return "the node is about to be deleted"
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue {
			return "the node has the condition NetworkUnavailable"
		}
	}
	return ""
}
