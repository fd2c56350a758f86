package examine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/compare"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// mostNodes is of how many nodes the view of every Service is compiled.
const mostNodes = 3

// All examines every Service, or those of a namespace if it isn't "", by what the API
// says, or, where it can't be asked, by what agents have in force. Nothing is sent to
// endpoints, and no kernel is compared: that is for one Service at a time.
func (x *Examiner) All(ctx context.Context, namespace string) (*doctor.Survey, error) {
	objects, err := x.Source.ReadEvery(ctx, namespace)
	if err != nil {
		return nil, err
	}
	survey := doctor.NewSurvey()
	survey.InForce = objects.NoAPI != ""
	var agents []agentlink.Found
	switch {
	case survey.InForce && len(objects.Services) > compare.MostServices: // their tables were read, and each question takes its time
		survey.NotChecked = append(survey.NotChecked, "why endpoints aren't used, of so many Services: fairway doctor svc/NAME")
	case objects.NoSlices != "":
		agents = x.Source.Agents(ctx, x.Node)
		survey.NotChecked = agentlink.Missing(agents)
		collect.AddNodes(objects, func() []agentlink.Found { return agents })
	}
	if n := len(objects.Nodes); n > mostNodes && x.Node == "" {
		survey.NotChecked = append(survey.NotChecked, fmt.Sprintf("traffic policies on %d of %d nodes: --node", n-mostNodes, n))
		objects.Nodes = objects.Nodes[:mostNodes]
	}
	agents = slices.DeleteFunc(agents, func(a agentlink.Found) bool {
		return !slices.ContainsFunc(objects.Nodes, func(n *corev1.Node) bool { return n.Name == a.Name() })
	})
	from, err := x.client(objects)
	if err != nil {
		return nil, err
	}
	var said []doctor.Announced
	missing := ""
	if len(x.Source.Files) == 0 && slices.ContainsFunc(objects.Services, doctor.HasPoolAddress) {
		said, missing = Announced(ctx, x.Source.Agents(ctx, x.Node))
	}
	parts := partsOf(objects)
	for _, s := range objects.Services {
		if namespace != "" && s.Namespace != namespace {
			continue
		}
		e := &doctor.Evidence{Objects: parts.about(s, from), Service: s, Domain: x.Domain, Announced: said, NoAnnounced: missing}
		e.Question = explain.Question{Typed: "svc/" + s.Name, Target: explain.Target{Namespace: s.Namespace, Name: s.Name}, From: from, Node: x.Node}
		e.Scaled = x.Source.Scaled(ctx, e.Objects, s)
		report, err := x.one(ctx, e, agents)
		if err != nil {
			return nil, fmt.Errorf("service %s/%s: %w", s.Namespace, s.Name, err)
		}
		survey.Add(s.Namespace+"/"+s.Name, report)
	}
	if len(x.Source.Files) == 0 && objects.NoAPI == "" {
		around, err := x.Source.Around(ctx, namespace)
		if err != nil {
			return nil, err
		}
		survey.AddAround(around)
	}
	return survey, nil
}

// client is who connects: a pod's name is one of the default namespace's, whichever Service is
// examined.
func (x *Examiner) client(objects *explain.Objects) (explain.Source, error) {
	q, err := explain.ParseQuestion("svc/any", x.From, x.Source.Namespace)
	if err != nil {
		return q.From, err
	}
	return objects.Locate(q.From, false)
}

func (x *Examiner) one(ctx context.Context, e *doctor.Evidence, agents []agentlink.Found) (*doctor.Report, error) {
	var ask explain.Asker
	if len(agents) > 0 {
		ask = agentlink.AskAllOnce(ctx, func() []agentlink.Found { return agents })
	}
	return doctor.ByAPI(ctx, e, x.Compile, ask)
}

// parts finds what concerns a Service among many objects.
type parts struct {
	all      *explain.Objects
	slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice // by Service
	pods     map[string][]*corev1.Pod                              // by namespace
	services map[netip.Addr][]*corev1.Service
}

func partsOf(o *explain.Objects) *parts {
	p := &parts{
		all: o, slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}, pods: map[string][]*corev1.Pod{},
		services: map[netip.Addr][]*corev1.Service{},
	}
	for _, s := range o.Slices {
		of := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
		p.slices[of] = append(p.slices[of], s)
	}
	for _, pod := range o.Pods {
		p.pods[pod.Namespace] = append(p.pods[pod.Namespace], pod)
	}
	for _, s := range o.Services {
		for _, a := range explain.AddressesOf(s) {
			p.services[a] = append(p.services[a], s)
		}
	}
	return p
}

// about are the objects that concern a Service: its own, Services with one of its addresses, and
// the client.
func (p *parts) about(s *corev1.Service, from explain.Source) *explain.Objects {
	o := *p.all
	o.Services, o.Slices, o.Pods = []*corev1.Service{s}, nil, p.pods[s.Namespace]
	if client := p.all.Pod(from.Namespace, from.Name); client != nil && from.Kind == "pod" && !slices.Contains(o.Pods, client) {
		o.Pods = append(slices.Clone(o.Pods), client)
	}
	for _, a := range explain.AddressesOf(s) {
		for _, other := range p.services[a] {
			if !slices.Contains(o.Services, other) {
				o.Services = append(o.Services, other)
			}
		}
	}
	for _, c := range o.Services {
		o.Slices = append(o.Slices, p.slices[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}]...)
	}
	return &o
}
