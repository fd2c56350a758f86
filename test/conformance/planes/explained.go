package planes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// checkExplained holds what `fairway explain` says of a packet, from the API's
// objects alone, to the specification's verdict. Packets are held to the same
// verdict, so explain says what they meet. The API doesn't say by which interface
// a pod's packets come: explain takes it for one of pods. Where the configuration
// names no pods, explain takes the pod ranges of all nodes, so it isn't asked.
func (c *Cluster) checkExplained(p Probe, v model.Verdict) error {
	noPods := len(c.config.Pods.Prefixes)+len(c.config.Pods.Interfaces) == 0 && !c.config.PodsOfNode
	if isPod := p.From.Node == NodeName && p.From.Name != NodeName; noPods || isPod && v.Origin != model.FromPod {
		return nil
	}
	report, err := c.explained(p)
	if err != nil {
		return fmt.Errorf("explain %s from %s: %w", p.To, p.From.Name, err)
	}
	if len(report.Views) != 1 || len(report.Views[0].Decisions) != 1 {
		return fmt.Errorf("explain %s from %s: %d views: %s", p.To, p.From.Name, len(report.Views), report.Answer)
	}
	if said, is := describeDecision(report.Views[0].Decisions[0]), describeVerdict(v); said != is {
		return fmt.Errorf("explain %s from %s: says %q, but the table says %q", p.To, p.From.Name, said, is)
	}
	return nil
}

// said is what `fairway explain` says of a probe, as the agent of a node with this plane
// answers it.
func (r *Run) said(p Probe) explain.Decision {
	packet := p.From.packet(p.Proto, p.To)
	plane := explain.Plane{Lacks: r.lacks, AnswersPass: func(client, endpoint netip.Addr) (pass bool) {
		err := r.topo.hosts[NodeName].Do(func() error {
			pass = kernel.AnswersPass(client, endpoint)
			return nil
		})
		return pass && err == nil
	}}
	asked := explain.Asked{Key: model.Key{Addr: p.To.Addr(), Port: p.To.Port(), Proto: p.Proto}, Source: packet.Src, In: packet.In}
	return explain.Decide(r.cluster.compiler, r.table, plane, asked)
}

// holdSaid holds packets against what explain says: what each backend sees of the client. An
// exception that was made for the plane must be said, too.
func (w *wanted) holdSaid(d explain.Decision, made []weaker) {
	w.seen = map[string]string{}
	for _, c := range d.Candidates {
		if c.Chosen {
			w.seen[backendName(model.Backend{Addr: c.Addr, Port: c.Port})] = c.Sees
		}
	}
	for _, one := range made {
		said := slices.ContainsFunc(d.Otherwise, func(text string) bool { return strings.HasSuffix(text, one.lack.Why) })
		if f := one.lack.Feature; !said && (f == kernel.DirectReturn || f == kernel.SilentDrop && d.Action == "dropped") {
			w.unsaid = fmt.Errorf("explain doesn't say that the plane lacks %s", one.lack)
		}
	}
}

// judgeSeen holds what a backend saw of the client against what explain says of it. A client
// that is the node has all of its addresses.
func (w wanted) judgeSeen(a Answer) error {
	node := hosts[NodeName]
	said := w.seen[a.Backend]
	if said == explain.SeesClient && a.Client != a.Local && !w.node || said == explain.SeesNode && a.Client != node.addr(a.Client) && !slices.Contains(w.sources, a.Client) {
		return fmt.Errorf("%s, but explain says that it sees the address of the %s", a, said)
	}
	return nil
}

// explained is explain's report on the first packet of a probe.
func (c *Cluster) explained(p Probe) (*explain.Report, error) {
	q := explain.Question{Typed: p.To.String(), Node: NodeName}
	q.Target = explain.Target{Addr: p.To.Addr(), Port: strconv.Itoa(int(p.To.Port())), Proto: p.Proto}
	switch {
	case p.From.Name == NodeName || p.From.Name == peerName:
		q.From = explain.Source{Kind: "node", Name: p.From.Name}
	case p.From.Node == "":
		q.From = explain.Source{Kind: "address", Addr: p.From.sourceFor(p.To.Addr())}
	default:
		q.From = explain.Source{Kind: "pod", Namespace: metav1.NamespaceDefault, Name: p.From.Name}
	}
	objects := &explain.Objects{Services: slices.Collect(maps.Values(c.services)), Slices: slices.Collect(maps.Values(c.slices))}
	for _, h := range hostList {
		switch {
		case h.Name == NodeName:
			objects.Nodes = append(objects.Nodes, h.apiNode(c.node.Zone, c.node.PodCIDRs))
		case h.Name == peerName:
			objects.Nodes = append(objects.Nodes, h.apiNode(zones[peerName], nil))
		case h.Node != "":
			objects.Pods = append(objects.Pods, h.apiPod())
		}
	}
	return explain.FromObjects(q, objects, c.config, nil)
}

func (p Host) apiNode(zone string, pods []netip.Prefix) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	for _, a := range []netip.Addr{p.Addr4, p.Addr6} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	for _, prefix := range pods {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, prefix.String())
	}
	return n
}

func (p Host) apiPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: p.Name}}
	pod.Spec.NodeName = p.Node
	pod.Status.PodIPs = []corev1.PodIP{{IP: p.Addr4.String()}, {IP: p.Addr6.String()}}
	return pod
}

// describeDecision says what explain says, in the words of describeVerdict.
func describeDecision(d explain.Decision) string {
	shares := map[netip.AddrPort]float64{}
	if d.Action == "forwarded" {
		for _, c := range d.Candidates {
			if c.Chosen {
				shares[netip.AddrPortFrom(c.Addr, c.Port)] += c.Share
			}
		}
	}
	return describeFate(d.Action, d.Origin, d.Masquerade, shares)
}

func describeVerdict(v model.Verdict) string {
	shares := map[netip.AddrPort]float64{}
	total := 0
	for _, b := range v.Backends() {
		total += int(b.Weight)
	}
	for _, b := range v.Backends() {
		shares[b.AddrPort()] += float64(b.Weight) / float64(total)
	}
	action := map[model.Action]string{model.Forward: "forwarded", model.Refuse: "refused", model.Discard: "dropped", model.Pass: "not a Service"}[v.Action]
	return describeFate(action, v.Origin.String(), v.Masquerade, shares)
}

func describeFate(action, origin string, masquerade bool, shares map[netip.AddrPort]float64) string {
	text := fmt.Sprintf("%s, from %s, masqueraded %t", action, origin, masquerade)
	for _, at := range slices.SortedFunc(maps.Keys(shares), netip.AddrPort.Compare) {
		text += fmt.Sprintf(", %s %.4f", at, shares[at])
	}
	return text
}
