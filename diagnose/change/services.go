package change

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/manifest"
	"github.com/fairway-net/fairway/model"
)

// side is what one world means for packets.
type side struct {
	in       *Input
	objects  *explain.Objects
	compiler *compile.Compiler
	table    *model.Table
	services map[types.NamespacedName]*corev1.Service
	slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	fronts   map[types.NamespacedName]map[model.Key]string // what becomes of packets
	ends     map[types.NamespacedName]map[string]string    // endpoints, and why they take connections; "" if they don't
	pods     map[string][]*corev1.Pod                      // by namespace
	problems map[types.NamespacedName][]string
}

// sideOf compiles a world as a node would that holds no endpoint: what is local to a node is said
// in words.
func (in *Input) sideOf(w World) *side {
	s := &side{
		in: in, objects: w.Objects, compiler: compile.New(in.Compile), services: map[types.NamespacedName]*corev1.Service{},
		slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}, fronts: map[types.NamespacedName]map[model.Key]string{},
		ends: map[types.NamespacedName]map[string]string{}, pods: map[string][]*corev1.Pod{}, problems: map[types.NamespacedName][]string{},
	}
	s.compiler.SetNode(compile.Node{PodCIDRs: manifest.PodCIDRs(w.Objects.Nodes)})
	for _, one := range w.Objects.Services {
		s.services[types.NamespacedName{Namespace: one.Namespace, Name: one.Name}] = one
		s.compiler.SetService(one)
	}
	for _, slice := range w.Objects.Slices {
		of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		s.slices[of] = append(s.slices[of], slice)
		s.compiler.SetSlice(slice)
	}
	for _, p := range w.Objects.Pods {
		s.pods[p.Namespace] = append(s.pods[p.Namespace], p)
	}
	s.table = s.compiler.Table()
	for f := range s.table.Frontends() {
		of := compile.ServiceOf(f.Name)
		if s.fronts[of] == nil {
			s.fronts[of], s.ends[of] = map[model.Key]string{}, map[string]string{}
		}
		s.fronts[of][f.Key] = s.becomes(f)
		for _, r := range f.Routes {
			s.addEnds(of, r.Pool)
		}
	}
	for _, p := range s.compiler.Problems() {
		s.problems[p.Service] = append(s.problems[p.Service], p.Message)
	}
	return s
}

// becomes says what becomes of packets to a frontend, by where they come from.
func (s *side) becomes(f *model.Frontend) string {
	var ways []string
	for o, r := range f.Routes {
		way := s.way(r)
		if len(ways) == 0 || !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
		if o == len(f.Routes)-1 && len(ways) > 1 {
			ways = []string{"from pods " + s.way(f.Routes[model.FromPod]), "from nodes " + s.way(f.Routes[model.FromNode]), "from outside " + s.way(f.Routes[model.FromOutside])}
		}
	}
	text := strings.Join(ways, "; ")
	if f.Sources != nil {
		text += fmt.Sprintf("; open to %v only", f.Sources)
	}
	return text
}

// way says where packets of one origin go.
func (s *side) way(r model.Route) string {
	pool := s.table.Pool(r.Pool)
	whole := r.Pool
	whole.Local = false
	n := 0
	for _, c := range s.compiler.Candidates(whole) {
		if c.Choice.Chosen() {
			n++
		}
	}
	text := "FORWARDED to "
	switch {
	case n == 0:
		return "REFUSED: no endpoint takes connections"
	case n == 1:
		text += "its only endpoint"
		if pool.Affinity != 0 { // which counts when there are more
			text += ", a client stays for " + pool.Affinity.String()
		}
	default:
		text += "one of its endpoints, " + explain.ChoiceOf(pool)
	}
	if r.Pool.Local {
		text += ", if it is on the node that the packet reaches, else dropped"
	}
	switch {
	case r.Direct:
		text += ", answered directly"
	case r.Masquerade:
		text += ", by the node's address"
	}
	return text
}

// addEnds notes the endpoints of a pool, as the whole cluster has them.
func (s *side) addEnds(of types.NamespacedName, id model.PoolID) {
	id.Local = false
	for _, c := range s.compiler.Candidates(id) {
		why := ""
		if c.Choice.Chosen() {
			why = c.Choice.String()
		}
		s.ends[of][fmt.Sprintf("%s of %s", s.endpoint(of, c), id.Name)] = why
	}
}

// endpoint names an endpoint: the address, and its pod.
func (s *side) endpoint(of types.NamespacedName, c compile.Candidate) string {
	if name := s.in.Addresses[c.Addr]; name != "" {
		return fmt.Sprintf("%s, port %d", name, c.Port)
	}
	text := netip.AddrPortFrom(c.Addr, c.Port).String()
	for _, slice := range s.slices[of] {
		for _, e := range slice.Endpoints {
			if len(e.Addresses) > 0 && e.Addresses[0] == c.Addr.String() && e.TargetRef != nil {
				return text + " (" + e.TargetRef.Name + ")"
			}
		}
	}
	return text
}

// services compares all Services.
func (in *Input) services(ctx context.Context) ([]Change, error) {
	before, after := in.sideOf(in.Before), in.sideOf(in.After)
	names := map[types.NamespacedName]bool{}
	for _, s := range []*side{before, after} {
		for name := range s.services {
			names[name] = true
		}
	}
	var list []Change
	for name := range names {
		lines := in.compareFronts(before.fronts[name], after.fronts[name])
		lines = append(lines, compareEnds(before, after, name)...)
		if len(lines) > 0 || !slices.Equal(before.problems[name], after.problems[name]) || before.services[name] != after.services[name] {
			wrong, err := newlyWrong(ctx, before, after, name)
			if err != nil {
				return nil, err
			}
			lines = append(lines, wrong...)
		}
		if len(lines) > 0 {
			list = append(list, Change{"Service " + name.String(), lines})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Object, b.Object) })
	return list, nil
}

// front names a frontend.
func (in *Input) front(k model.Key) string {
	at := k.Addr.String()
	if name := in.Addresses[k.Addr]; name != "" {
		at = name + ":"
	} else if k.Addr.Is6() {
		at = "[" + at + "]:"
	} else {
		at += ":"
	}
	port := fmt.Sprint(k.Port)
	if k.IsNodePort() {
		at = "node port "
		if k.Addr.Is6() {
			at = "IPv6 node port "
		}
		if name := in.Ports[k.Port]; name != "" {
			port = name
		}
	}
	return at + port + "/" + k.Proto.String()
}

// compareFronts compares the addresses and ports of a Service.
func (in *Input) compareFronts(before, after map[model.Key]string) []Line {
	var keys []model.Key
	for k := range before {
		keys = append(keys, k)
	}
	for k := range after {
		if _, both := before[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, model.Key.Compare)
	var lines []Line
	for _, k := range keys {
		was, had := before[k]
		is, has := after[k]
		switch name := in.front(k); {
		case !had:
			lines = append(lines, Line{Appears, name + ": " + is})
		case !has:
			lines = append(lines, Line{Goes, name + ": no longer a Service's; it was " + was})
		case was != is:
			lines = append(lines, Line{Changes, fmt.Sprintf("%s: %s; it was %s", name, is, was)})
		}
	}
	return lines
}

// compareEnds compares the endpoints that take new connections.
func compareEnds(before, after *side, name types.NamespacedName) []Line {
	was, is := before.ends[name], after.ends[name]
	var lines []Line
	for e, why := range is {
		if why != "" && was[e] == "" {
			lines = append(lines, Line{Appears, "endpoint " + e + ": " + why})
		}
	}
	for e, why := range was {
		if why == "" || is[e] != "" {
			continue
		}
		what := "endpoint " + e + ": takes no new connections"
		if _, listed := is[e]; !listed && after.services[name] != nil {
			switch orphans := after.services[name].Annotations[compile.AnnotationOrphans]; orphans {
			case "", "keep":
				what += "; those that it has stay while its process lives"
			default:
				what += "; those that it has: " + orphans
			}
		}
		lines = append(lines, Line{Goes, what})
	}
	slices.SortFunc(lines, func(a, b Line) int { return strings.Compare(a.What, b.What) })
	return lines
}

// newlyWrong is what is wrong with a Service after the change, and wasn't before.
func newlyWrong(ctx context.Context, before, after *side, name types.NamespacedName) ([]Line, error) {
	known := map[string]bool{}
	found, err := before.findings(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, text := range append(found, before.problems[name]...) {
		known[text] = true
	}
	if found, err = after.findings(ctx, name); err != nil {
		return nil, err
	}
	var lines []Line
	for _, text := range append(found, after.problems[name]...) {
		if !known[text] {
			lines = append(lines, Line{Wrong, text})
		}
	}
	return lines, nil
}

// findings are doctor's about a Service, by its objects alone.
func (s *side) findings(ctx context.Context, name types.NamespacedName) ([]string, error) {
	service := s.services[name]
	if service == nil {
		return nil, nil
	}
	o := *s.objects
	o.Services, o.Slices, o.Pods = []*corev1.Service{service}, s.slices[name], s.pods[name.Namespace]
	e := &doctor.Evidence{Objects: &o, Service: service}
	e.Question = explain.Question{Typed: "svc/" + name.Name, Target: explain.Target{Namespace: name.Namespace, Name: name.Name}}
	if len(o.Nodes) > 1 {
		o.Nodes = o.Nodes[:1]
	}
	report, err := doctor.ByAPI(ctx, e, s.in.Compile, nil)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", name, err)
	}
	var list []string
	for _, result := range report.Results {
		for _, f := range result.Findings {
			if f.Grade > doctor.Note && f.Code != doctor.LoadBalancerPending {
				list = append(list, fmt.Sprintf("%s %s: %s", f.Code, f.Grade, f.What))
			}
		}
	}
	return list, nil
}
