package cmd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// mostNodes is of how many nodes the view of every Service is compiled.
const mostNodes = 3

// runAll is doctor -A.
func (f *doctorFlags) runAll(cmd *cobra.Command, failOn doctor.Grade) error {
	if !slices.Contains([]string{"", "json", "yaml"}, f.output) {
		return exitError{2, fmt.Errorf("--output: %q must be json or yaml", f.output)}
	}
	survey, err := f.examineAll(cmd)
	if err != nil {
		return exitError{2, err}
	}
	if err := writeReport(cmd.OutOrStdout(), f.output, survey, survey.WriteText); err != nil {
		return err
	}
	if worst, found := survey.Worst(); found && worst >= failOn {
		return exitError{code: 1}
	}
	return nil
}

// examineAll examines every Service, or those of a namespace, by what the API
// says, or, where it can't be asked, by what agents have in force. Nothing is sent to
// endpoints, and no kernel is compared: that is for one Service at a time.
func (f *doctorFlags) examineAll(cmd *cobra.Command) (*doctor.Survey, error) {
	config, err := f.agent.config()
	if err != nil {
		return nil, err
	}
	namespace := ""
	if cmd.Flags().Changed("namespace") {
		namespace = f.objects.namespace
	}
	objects, err := f.objects.readEvery(cmd.Context(), namespace)
	if err != nil {
		return nil, err
	}
	survey := doctor.NewSurvey()
	survey.InForce = objects.NoAPI != ""
	var agents []agentlink.Found
	switch {
	case survey.InForce && len(objects.Services) > mostServicesRead: // their tables were read, and each question takes its time
		survey.NotChecked = append(survey.NotChecked, "why endpoints aren't used, of so many Services: fairway doctor svc/NAME")
	case objects.NoSlices != "":
		agents = f.objects.agents(cmd.Context(), f.node)
		survey.NotChecked = agentlink.Missing(agents)
		addNodes(objects, func() []agentlink.Found { return agents })
	}
	if n := len(objects.Nodes); n > mostNodes && f.node == "" {
		survey.NotChecked = append(survey.NotChecked, fmt.Sprintf("traffic policies on %d of %d nodes: --node", n-mostNodes, n))
		objects.Nodes = objects.Nodes[:mostNodes]
	}
	agents = slices.DeleteFunc(agents, func(a agentlink.Found) bool {
		return !slices.ContainsFunc(objects.Nodes, func(n *corev1.Node) bool { return n.Name == a.Name() })
	})
	parts := partsOf(objects)
	for _, s := range objects.Services {
		if namespace != "" && s.Namespace != namespace {
			continue
		}
		report, err := f.examineOne(cmd.Context(), s, parts.about(s), config.Compile, agents)
		if err != nil {
			return nil, fmt.Errorf("service %s/%s: %w", s.Namespace, s.Name, err)
		}
		survey.Add(s.Namespace+"/"+s.Name, report)
	}
	return survey, nil
}

func (f *doctorFlags) examineOne(ctx context.Context, s *corev1.Service, objects *explain.Objects, config compile.Config, agents []agentlink.Found) (*doctor.Report, error) {
	q, err := explain.ParseQuestion("svc/"+s.Name, f.from, s.Namespace)
	if err != nil {
		return nil, err
	}
	q.Node = f.node
	var ask explain.Asker
	if len(agents) > 0 {
		ask = agentlink.AskAllOnce(ctx, func() []agentlink.Found { return agents })
	}
	return doctor.ByAPI(ctx, q, s, objects, config, f.domain, ask)
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

// about are the objects that concern a Service: its own, and Services with one of
// its addresses.
func (p *parts) about(s *corev1.Service) *explain.Objects {
	o := *p.all
	o.Services, o.Slices, o.Pods = []*corev1.Service{s}, nil, p.pods[s.Namespace]
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
