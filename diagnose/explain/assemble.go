package explain

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/endpoint/check"
)

// newReport starts a report on a question. service is the Service it is about, or
// nil. The answer is there already where it doesn't depend on what nodes do.
func newReport(q Question, service *corev1.Service, objects *Objects) *Report {
	r := &Report{APIVersion: SchemaVersion, Kind: "Explanation", Target: q.Typed, From: q.From, Outcome: OutcomeUnknown, target: q.Target}
	if objects.NoAPI != "" {
		r.NotChecked = append(r.NotChecked, "the API: "+objects.NoAPI+"; this is what agents have in force")
	}
	if q.From.Kind == "pod" && !q.From.Addr.IsValid() {
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("address and node of %s; what is said holds for any other pod, too", q.From))
	}
	if objects.NoNodes != "" {
		r.NotChecked = append(r.NotChecked, "nodes: "+objects.NoNodes)
	}
	if objects.NoSlices != "" && objects.NoAPI == "" {
		r.NotChecked = append(r.NotChecked, "endpoints, as the API has them: "+objects.NoSlices)
	}
	if objects.NoPods != "" && objects.NoAPI == "" {
		r.NotChecked = append(r.NotChecked, "pods: "+objects.NoPods)
	}
	if objects.NoOthers != "" && objects.NoAPI == "" {
		r.NotChecked = append(r.NotChecked, "other Services with its addresses: "+objects.NoOthers)
	}
	if service == nil {
		r.withoutService(q.Target, objects)
		return r
	}
	r.Service = serviceInfo(service, objects)
	r.Endpoints = endpointsOf(service, objects)
	r.noteSelector(service, objects)
	switch {
	case objects.NoAPI != "": // what isn't in force isn't known
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		r.Answer = fmt.Sprintf("%s is an alias: DNS answers with CNAME %s, and nothing is forwarded", r.Service, service.Spec.ExternalName)
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		r.Answer = fmt.Sprintf("%s is headless: DNS answers with the addresses of its %s, and nothing is forwarded", r.Service, readyCount(service, objects))
	case service.Spec.ClusterIP == "" && len(service.Spec.ClusterIPs) == 0:
		r.Answer, r.Outcome = fmt.Sprintf("%s has no cluster IP", r.Service), OutcomeNot
	default:
		r.noteOtherWays(service, q)
	}
	return r
}

// noteOtherWays names the addresses and node ports of a Service that aren't looked at where the
// question names neither a client nor an address: what becomes of packets there may differ.
func (r *Report) noteOtherWays(s *corev1.Service, q Question) {
	if q.From.Kind != "" || q.Target.Addr.IsValid() {
		return
	}
	var ways []string
	ask := ""
	looked := q.Target.Keys(s, q.From)
	for _, k := range q.Target.Keys(s, Source{Kind: "address"}) {
		if !slices.Contains(looked, k) {
			ways = append(ways, k.String())
			ask = cmp.Or(ask, netip.AddrPortFrom(k.Addr, k.Port).String())
		}
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			ways = append(ways, "node port "+number(p.NodePort)+"/"+protocol(p.Protocol).String())
			ask = cmp.Or(ask, "NODE-ADDRESS:"+number(p.NodePort))
		}
	}
	if len(ways) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("also at %s: fairway explain %s", strings.Join(ways, ", "), ask))
	}
}

// withoutService answers where there is no such Service.
func (r *Report) withoutService(t Target, objects *Objects) {
	if t.Name == "" {
		return // an address; the nodes' views tell
	}
	r.Outcome = OutcomeNot
	r.Answer = fmt.Sprintf("there is no Service %s/%s", t.Namespace, t.Name)
	if objects.NoAPI != "" {
		r.Outcome = OutcomeUnknown
		r.Answer = fmt.Sprintf("no agent that answers has a Service %s/%s in force; a headless one or an alias never is, and whether there is one only the API knows", t.Namespace, t.Name)
	}
	if similar := objects.Similar(t.Namespace, t.Name); similar != "" {
		r.Answer += "; did you mean " + similar + "?"
		r.Next = append(r.Next, "fairway explain svc/"+similar)
	}
}

// addProblems takes in what a node can't do of what Services say.
func (r *Report) addProblems(list []compile.Problem) {
	for _, p := range list {
		if !slices.Contains(r.Problems, p) {
			r.Problems = append(r.Problems, p)
			r.Notes = append(r.Notes, p.Service.String()+": "+p.Message)
		}
	}
}

// nameService finds the Service of an address that no Service names as its own,
// such as a node port's, by what the nodes say.
func (r *Report) nameService(objects *Objects) {
	for _, v := range r.Views {
		for _, d := range v.Decisions {
			if r.Service != nil || d.Service == "" {
				continue
			}
			name := compile.ServiceOf(d.Service)
			if s := objects.Service(name.Namespace, name.Name); s != nil {
				r.Service, r.Endpoints = serviceInfo(s, objects), endpointsOf(s, objects)
				r.noteSelector(s, objects)
			}
		}
	}
}

func serviceInfo(s *corev1.Service, o *Objects) *ServiceInfo {
	info := &ServiceInfo{
		Namespace: s.Namespace, Name: s.Name, Type: string(s.Spec.Type), Selector: SelectorText(s.Spec.Selector),
		Addresses: AddressesOf(s), External: string(s.Spec.ExternalTrafficPolicy), ExternalName: s.Spec.ExternalName,
		PodsSelected: len(o.SelectedPods(s)), SliceCount: len(o.SlicesOf(s)),
	}
	if info.Type == "" && o.NoAPI == "" {
		info.Type = string(corev1.ServiceTypeClusterIP)
	}
	if s.Spec.InternalTrafficPolicy != nil {
		info.Internal = string(*s.Spec.InternalTrafficPolicy)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		info.LoadBalancers = append(info.LoadBalancers, in.IP+in.Hostname)
	}
	return info
}

// String names the Service as "namespace/name".
func (s *ServiceInfo) String() string { return s.Namespace + "/" + s.Name }

// noteSelector says what is odd about the selector.
func (r *Report) noteSelector(s *corev1.Service, o *Objects) {
	if len(s.Spec.Selector) == 0 || len(o.SelectedPods(s)) > 0 || o.NoPods != "" {
		return
	}
	note := fmt.Sprintf("selector %s matches no pod", SelectorText(s.Spec.Selector))
	if n, ok := o.NearestSelector(s); ok {
		note += fmt.Sprintf("; %s=%s would match %d", n.Key, n.Want, n.Matches)
	}
	r.Notes = append(r.Notes, note)
}

func readyCount(s *corev1.Service, o *Objects) string {
	n := 0
	for _, slice := range o.SlicesOf(s) {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return strconv.Itoa(n) + " ready endpoints"
}

// endpointsOf gives names and conditions to the addresses in a Service's slices.
func endpointsOf(s *corev1.Service, o *Objects) []Endpoint {
	var list []Endpoint
	failing := failingChecks(s, o)
	for _, slice := range o.SlicesOf(s) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			a, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			ep := Endpoint{Addr: a.Unmap(), Slice: slice.Name, Node: deref(e.NodeName), Zone: deref(e.Zone)}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				ep.Pod = e.TargetRef.Name
				ep.Detail = podDetail(o.Pod(s.Namespace, ep.Pod))
			}
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				ep.Detail = cmp.Or(ep.Detail, failing[ep.Addr])
				if reason := slice.Annotations[check.AnnotationReason]; reason != "" {
					ep.Detail = "by its check: " + reason
				}
			}
			list = append(list, ep)
		}
	}
	slices.SortStableFunc(list, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return list
}

// failingChecks are the reasons for which nodes found endpoints of a Service wanting.
func failingChecks(s *corev1.Service, o *Objects) map[netip.Addr]string {
	nodes := map[netip.Addr]map[string][]string{} // by reason
	for _, slice := range o.Slices {
		service, node, is := check.IsReport(slice)
		if !is || service.Namespace != s.Namespace || service.Name != s.Name {
			continue
		}
		for _, f := range check.Findings(slice) {
			if f.Reason == "" {
				continue
			}
			a := f.Addr.Addr()
			if nodes[a] == nil {
				nodes[a] = map[string][]string{}
			}
			if !slices.Contains(nodes[a][f.Reason], node) {
				nodes[a][f.Reason] = append(nodes[a][f.Reason], node)
			}
		}
	}
	texts := map[netip.Addr]string{}
	for a, reasons := range nodes {
		var parts []string
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			slices.Sort(reasons[reason])
			parts = append(parts, reason+", seen from "+strings.Join(reasons[reason], ", "))
		}
		texts[a] = "by its check: " + strings.Join(parts, "; ")
	}
	return texts
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// podDetail says since when a Pod isn't ready, and why.
func podDetail(p *corev1.Pod) string {
	if p == nil {
		return ""
	}
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodReady || c.Status == corev1.ConditionTrue {
			continue
		}
		why := c.Message
		if why == "" {
			why = c.Reason
		}
		if c.LastTransitionTime.IsZero() {
			return why
		}
		detail := "since " + c.LastTransitionTime.UTC().Format(time.RFC3339)
		if why != "" {
			detail += ": " + why
		}
		return detail
	}
	return ""
}

// endpoint finds the names of a candidate.
func (r *Report) endpoint(c CandidateShare) Endpoint {
	i := slices.IndexFunc(r.Endpoints, func(e Endpoint) bool {
		return e.Addr == c.Addr && (e.Slice == c.Slice || c.Slice == "")
	})
	if i < 0 {
		return Endpoint{Addr: c.Addr, Slice: c.Slice}
	}
	return r.Endpoints[i]
}

func number(p int32) string { return strconv.Itoa(int(p)) }

// portNumber reads a port number from 1 to 65535.
func portNumber(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n > 0
}
