package examine

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/overview"
	"github.com/fairway-net/fairway/internal/kernel"
)

const (
	// readTime is how long the API has to tell all that an overview shows.
	readTime = 10 * time.Second
	// silentAfter is how long it has to begin, before agents are asked in its place.
	silentAfter = 700 * time.Millisecond
	// agentsTime is how long agents have to add what only they know.
	agentsTime = 3 * time.Second
)

// Overview is what the API says of all there is, with what agents add; where the API doesn't
// answer, it is what the agents of this machine or of the lab have in force.
func Overview(ctx context.Context, source *collect.Source) (overview.Input, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	quick := *source
	quick.Answers = &collect.Answers{FirstAnswerTimeout: silentAfter}
	in, err := read(ctx, &quick)
	if err == nil {
		add(ctx, source, &in)
		return in, nil
	}
	if inForce, failed := InForce(ctx, source, err); failed == nil {
		return inForce, nil
	}
	if in, err = read(ctx, source); err == nil { // it is slow, and there is nobody else to ask
		add(ctx, source, &in)
	}
	return in, err
}

// add adds what agents know, and what the API says beside Services; both at once.
func add(ctx context.Context, source *collect.Source, in *overview.Input) {
	ctx, cancel := context.WithTimeout(ctx, agentsTime)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { in.Neglected = neglected(ctx, source) })
	both.Go(func() { addAgents(ctx, source, in) })
	both.Wait()
}

// Beside is what is wrong beside Services' own objects: which of these Services no node announces,
// and the objects on which nobody acts. What the user may not read has no findings.
func Beside(ctx context.Context, source *collect.Source, services []*corev1.Service) []doctor.ServiceReport {
	found := unattended(ctx, source)
	if len(services) == 0 {
		return found
	}
	said, missing := Announced(ctx, source.Agents(ctx, ""))
	for _, s := range services {
		if why := unannounced(ctx, s, said, missing); why != "" {
			found = append(found, doctor.ServiceReport{Service: s.Namespace + "/" + s.Name, Findings: []doctor.Finding{{Code: doctor.NotAnnounced, Grade: doctor.Proved, What: why}}})
		}
	}
	return found
}

// unattended are the objects on which nobody acts.
func unattended(ctx context.Context, source *collect.Source) []doctor.ServiceReport {
	around, err := source.Around(ctx, metav1.NamespaceAll)
	if err != nil {
		return nil
	}
	survey := doctor.NewSurvey()
	survey.AddAround(around)
	return survey.Found
}

// neglected are the objects on which nobody acts, in lines for people.
func neglected(ctx context.Context, source *collect.Source) (lines []string) {
	for _, found := range unattended(ctx, source) {
		for _, f := range found.Findings {
			lines = append(lines, fmt.Sprintf("%s: %s (%s)", found.Service, f.What, f.Code))
		}
	}
	return lines
}

// read reads the API's objects.
func read(ctx context.Context, source *collect.Source) (in overview.Input, err error) {
	config, err := source.Config()
	if err != nil {
		return in, err
	}
	client, err := kubernetes.NewForConfig(source.WithFirstAnswerTimeout(config))
	if err != nil {
		return in, err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return in, fmt.Errorf("list Nodes: %w", err)
	}
	services, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return in, fmt.Errorf("list Services: %w", err)
	}
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return in, fmt.Errorf("list EndpointSlices: %w", err)
	}
	events, err := client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	in = overview.Input{Nodes: nodes.Items, Services: services.Items, Slices: slices.Items}
	switch {
	case apierrors.IsForbidden(err): // such as for a machine's own credential
		in.NoEvents = err.Error()
	case err != nil:
		return in, fmt.Errorf("list Events: %w", err)
	default:
		in.Events = events.Items
	}
	return in, nil
}

// NotWell says of some Services what is not well, as the overview does: without endpoints, without
// an address, announced by nobody.
func NotWell(ctx context.Context, source *collect.Source, services []corev1.Service, slices []discoveryv1.EndpointSlice) []string {
	in := overview.Input{Services: services, Slices: slices}
	ctx, cancel := context.WithTimeout(ctx, agentsTime)
	defer cancel()
	addAgents(ctx, source, &in)
	return overview.OfServices(in)
}

// addAgents adds what only agents know: their modes, and who announces which address.
func addAgents(ctx context.Context, source *collect.Source, in *overview.Input) {
	in.Unannounced = map[types.NamespacedName]string{}
	agents := source.Agents(ctx, "")
	addNodes(in, agents)
	if in.NotAsked = agentlink.Missing(agents); len(agents) == 0 {
		in.NotAsked = []string{"no agent of a node was found"}
	}
	said, missing := Announced(ctx, agents)
	for i := range in.Services {
		if why := unannounced(ctx, &in.Services[i], said, missing); why != "" {
			in.Unannounced[types.NamespacedName{Namespace: in.Services[i].Namespace, Name: in.Services[i].Name}] = why
		}
	}
}

// addNodes adds what agents say of their nodes.
func addNodes(in *overview.Input, agents []agentlink.Found) {
	in.Modes, in.Drivers, in.Ahead = map[string]string{}, map[string][]kernel.Driver{}, map[string][]string{}
	for _, a := range agents {
		if a.Err != nil {
			continue
		}
		in.Modes[a.Name()], in.Drivers[a.Name()] = a.Status.Mode, a.Status.Drivers
		for _, first := range a.Status.Ahead {
			in.Ahead[a.Name()] = append(in.Ahead[a.Name()], first.What)
		}
	}
}

// unannounced says that no node announces a Service's address; "" if one does, or if that isn't
// known.
func unannounced(ctx context.Context, s *corev1.Service, said []doctor.Announced, missing string) string {
	e := &doctor.Evidence{Objects: &explain.Objects{}, Service: s, Announced: said, NoAnnounced: missing}
	return doctor.Unannounced(ctx, e)
}

// InForce is what the agents of this machine or of the lab have in force; failed says why the
// API isn't asked.
func InForce(ctx context.Context, source *collect.Source, failed error) (in overview.Input, err error) {
	here := *source
	here.WithoutAPI()
	o, err := here.InForce(ctx, failed)
	if err != nil {
		return in, err
	}
	in = overview.Input{NoAPI: o.NoAPI, Taking: map[types.NamespacedName]int{}, Slices: []discoveryv1.EndpointSlice{}}
	for _, n := range o.Nodes {
		in.Nodes = append(in.Nodes, *n)
	}
	for _, s := range o.Services {
		in.Services = append(in.Services, *s)
		name := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		in.Taking[name] = o.TakingInForce(name)
	}
	addNodes(&in, here.AgentsHere(ctx))
	return in, nil
}
