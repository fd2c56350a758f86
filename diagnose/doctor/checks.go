package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Grade says how sure a finding is.
type Grade int

// The grades, from the least sure.
const (
	Note Grade = iota
	Likely
	Proved
)

// String names the grade as --fail-on does.
func (g Grade) String() string { return [...]string{"note", "likely", "proved"}[g] }

// Finding is one cause that was found.
type Finding struct {
	Code  Code   `json:"code"`
	Grade Grade  `json:"grade"`
	What  string `json:"what"` // with the names and addresses concerned
	// Of are objects of one kind of which the same is true, such as pods.
	Of  []string `json:"of,omitempty"`
	Fix string   `json:"fix"`
}

// text is what was found, for people, and of which objects.
func (f *Finding) text() string {
	if len(f.Of) == 0 {
		return f.What
	}
	named, more := f.Of, ""
	if n := len(named) - mostNamed; n > 0 {
		named, more = named[:mostNamed], fmt.Sprintf(" and %d more", n)
	}
	return f.What + " (" + join(named) + more + ")"
}

// same reports whether two findings say the same, if perhaps of different objects.
func (f Finding) same(o Finding) bool {
	return f.Code == o.Code && f.Grade == o.Grade && f.What == o.What
}

// check looks for some causes. It is left out if one of the causes it depends on
// was found, or if it can't be done with the evidence there is.
type check struct {
	group  string // heading in the report
	name   string // what was looked at, if all is well
	unless []Code // what it would find follows from these
	can    func(*Evidence) (bool, string)
	run    func(context.Context, *Evidence) []Finding
	// nodes are those that it speaks of; nil if it isn't about nodes.
	nodes func(*Evidence) []*Node
	// except names the nodes of which it says nothing, each with the reason; nil if it
	// speaks of all.
	except func(*Evidence) []string
}

// checks are all checks, in the order of a packet's way.
func checks() []check {
	return []check{
		{group: "api", name: "the Service is there", can: asked, run: checkService},
		{group: "api", name: "the selector matches pods", unless: []Code{NoSuchService}, can: withPods, run: checkSelector},
		{group: "api", name: "target ports are known", unless: []Code{NoSuchService, SelectorMatchesNoPod}, can: withPods, run: checkTargetPorts},
		{group: "api", name: "an endpoint is ready", unless: []Code{NoSuchService, SelectorMatchesNoPod, UnknownTargetPort}, can: canReady, run: checkReady},
		{group: "api", name: "slices fit the ports", unless: []Code{NoSuchService}, can: withSlices, run: checkSlices},
		{group: "api", name: "the load balancer has an address", unless: []Code{NoSuchService}, can: hasService, run: checkLoadBalancer},
		{group: "dns", name: "the name resolves to the Service", unless: []Code{NoSuchService}, can: canLookup, run: checkNames, nodes: (*Evidence).probing},
		{group: "dns", name: "the client asks the cluster's DNS", unless: []Code{NoSuchService}, can: fromPod, run: checkClient},
		{group: "model", name: "the port is served", unless: []Code{NoSuchService}, can: hasViews, run: checkPort},
		{group: "model", name: "traffic policies have local endpoints", unless: []Code{SelectorMatchesNoPod, NoEndpointReady}, can: hasViews, run: checkPolicies},
		{group: "model", name: "the client is let in", can: hasViews, run: checkSources},
		{group: "model", name: "no other Service has the address", can: withOthers, run: checkConflicts},
		{group: "model", name: "a node announces the load balancer's address", unless: []Code{NoSuchService, LoadBalancerPending}, can: canAnnounce, run: checkAnnounced},
		{group: "model", name: "network policies let clients in", unless: []Code{NoSuchService, SelectorMatchesNoPod, NoEndpointReady}, can: hasPolicies, run: checkNetworkPolicies},
		{group: "node", name: "agents keep up with the API", can: hasAgents, run: checkAgents},
		{group: "kernel", name: "the kernel holds what it should", can: hasKernel, run: checkKernel, except: noKernel},
		{group: "node", name: "packets are forwarded", can: hasHost, run: checkForwarding, nodes: (*Evidence).looked, except: unlooked},
		{group: "node", name: "the firewall lets packets through", can: hasHost, run: checkFirewall, nodes: (*Evidence).looked},
		{group: "node", name: "no other Service proxy is there", can: hasHost, run: checkOtherProxies, nodes: (*Evidence).looked},
		{group: "node", name: "no rule of others takes packets first", can: hasAnswers, run: checkAhead, except: silent},
		{group: "node", name: "the connection table has room", can: hasHost, run: checkConntrack, nodes: (*Evidence).looked},
		{group: "reach", name: "endpoints accept connections", unless: []Code{NoSuchService, SelectorMatchesNoPod, NoEndpointReady}, can: canConnect, run: checkEndpoints, nodes: (*Evidence).probing},
		{group: "reach", name: "firewalls let through what is forwarded", unless: []Code{NoSuchService, SelectorMatchesNoPod, NoEndpointReady, NetworkPolicyRefuses, ForwardPolicyDrops, NotForwarding}, can: canConnect, run: checkForwarded, nodes: (*Evidence).probing},
		{group: "reach", name: "large packets reach endpoints", unless: []Code{NoSuchService, SelectorMatchesNoPod, NoEndpointReady, NoWayToNode}, can: canConnect, run: checkLargePackets, nodes: (*Evidence).probing},
		{group: "reach", name: "the pod reaches itself through the Service", unless: []Code{NobodyListens, ListensAtLoopback, NoWayToNode}, can: isEndpoint, run: checkHairpin},
		{group: "reach", name: "old connections lead to endpoints", unless: []Code{NoSuchService}, can: hasFlows, run: checkFlows},
	}
}

func hasViews(e *Evidence) (bool, string) { return e.Report != nil && len(e.Report.Views) > 0, "" }

// unread is why the API's objects aren't there, where another line has the whole reason.
const unread = "the API can't be asked"

func asked(e *Evidence) (bool, string) {
	if e.Objects != nil && e.Objects.NoAPI != "" {
		return false, unread
	}
	return e.Objects != nil, ""
}

// hasService says whether there is a Service, as the API has it.
func hasService(e *Evidence) (bool, string) {
	if e.Service == nil {
		return false, ""
	}
	return asked(e)
}

// withSlices says whether there is a Service whose EndpointSlices were read.
func withSlices(e *Evidence) (bool, string) {
	if can, why := hasService(e); !can {
		return false, why
	}
	return e.Objects.NoSlices == "", e.Objects.NoSlices
}

// canReady says whether it is known which endpoints are ready.
func canReady(e *Evidence) (bool, string) {
	if can, _ := hasViewsOfService(e); can && e.Objects.NoSlices != "" {
		return true, ""
	}
	return withSlices(e)
}

func hasViewsOfService(e *Evidence) (bool, string) {
	views, _ := hasViews(e)
	return views && e.Service != nil, ""
}

// withPods says whether there is a Service that selects pods, and whether they were read.
func withPods(e *Evidence) (bool, string) {
	if e.Service == nil || len(e.Service.Spec.Selector) == 0 {
		return false, ""
	}
	return e.Objects.NoPods == "", e.Objects.NoPods
}

func hasHost(e *Evidence) (bool, string) {
	return len(e.looked()) > 0, e.NoNodes
}

func canConnect(e *Evidence) (bool, string) {
	if views, _ := hasViews(e); !views {
		return false, ""
	}
	return len(e.probing()) > 0, e.NoNodes
}

func canLookup(e *Evidence) (bool, string) {
	if e.Service == nil {
		return false, ""
	}
	if e.Objects.NoOthers != "" && e.Objects.NoAPI == "" {
		return false, e.Objects.NoOthers // where the cluster's DNS is isn't known either
	}
	return len(e.probing()) > 0, e.NoNodes
}

func withOthers(e *Evidence) (bool, string) {
	if can, why := hasViewsOfService(e); !can {
		return false, why
	}
	return e.Objects.NoOthers == "", e.Objects.NoOthers
}

// Examine runs all checks.
func Examine(ctx context.Context, e *Evidence) *Report {
	r := &Report{APIVersion: schemaVersion, Kind: "Diagnosis", Target: e.Question.Typed}
	if e.Service != nil {
		r.Service = e.Service.Namespace + "/" + e.Service.Name
	}
	for _, c := range checks() {
		if can, why := c.can(e); !can {
			if why != "" {
				r.NotChecked = append(r.NotChecked, c.name+": "+why)
			}
			continue
		}
		if i := slices.IndexFunc(c.unless, r.has); i >= 0 {
			r.Skipped = append(r.Skipped, c.name+": "+c.unless[i].String())
			continue
		}
		result := Result{Group: c.group, Check: c.name}
		if c.nodes != nil {
			result.Nodes = names(c.nodes(e))
		}
		for _, f := range c.run(ctx, e) {
			f.Fix = cmp.Or(f.Fix, cause(f.Code).Fix)
			result.Findings = append(result.Findings, f)
		}
		r.Results = append(r.Results, result)
		if c.except != nil {
			for _, why := range c.except(e) {
				r.NotChecked = append(r.NotChecked, c.name+": "+why)
			}
		}
	}
	if e.Objects != nil && e.Objects.NoAPI != "" {
		r.NotChecked = append(r.NotChecked, "the API: "+e.Objects.NoAPI+"; what is checked is what agents have in force")
	}
	if from := e.Question.From; from.Kind == "pod" && e.Report != nil && !e.Report.From.Addr.IsValid() {
		r.NotChecked = append(r.NotChecked, "what is of "+from.String()+" alone: its address and node aren't known")
	}
	r.NotChecked = append(r.NotChecked, e.NotAsked...)
	for _, n := range e.looked() {
		for _, what := range n.Host.Unreadable {
			r.NotChecked = append(r.NotChecked, n.on(what))
		}
	}
	return r
}
