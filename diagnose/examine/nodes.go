package examine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/host"
	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/netns"
)

const (
	// mostLooked is how many nodes are looked at.
	mostLooked = 16
	// mostProbing is from how many of them packets are sent, where it isn't known where the
	// client is.
	mostProbing = 4
)

// lookAtNodes takes the facts of every node that a packet may pass: the client's, or, if that
// isn't known, all of them, and those with endpoints. Packets are sent from where clients are.
// What couldn't be looked at is noted.
func (x *Examiner) lookAtNodes(ctx context.Context, e *doctor.Evidence, agents []agentlink.Found) {
	client := cmp.Or(x.Node, e.Report.From.Node)
	var passed []agentlink.Found
	left := 0
	for _, a := range x.order(e, client, agents) {
		switch {
		case a.Err != nil: // which is said
		case len(passed) == mostLooked:
			left++
		default:
			passed = append(passed, a)
		}
	}
	if left > 0 {
		e.NotAsked = append(e.NotAsked, fmt.Sprintf("%d more nodes that packets may pass: --node", left))
	}
	e.Nodes = look(ctx, passed)
	sending := 0
	for i := range e.Nodes {
		if client != "" && e.Nodes[i].Name != client || sending == mostProbing {
			e.Nodes[i].Probe = nil
			continue
		}
		sending++
	}
	if len(passed) == 0 && e.NoNodes == "" && (client == "" || collect.IsHere(e.Objects, client)) { // a node without an agent
		e.Nodes = []doctor.Node{{Host: host.Read(ctx), Probe: probe.Prober{}}}
	}
	if len(e.Nodes) == 0 {
		e.NoNodes = cmp.Or(e.NoNodes, "no agent answers")
	}
}

// order are the agents of nodes that a packet may pass, the client's first.
func (x *Examiner) order(e *doctor.Evidence, client string, agents []agentlink.Found) []agentlink.Found {
	list := slices.Clone(agents)
	if client != "" {
		holding := e.Objects.NodesOf(e.Question.Target)
		list = slices.DeleteFunc(list, func(a agentlink.Found) bool { return a.Name() != client && !holding[a.Name()] })
	}
	slices.SortStableFunc(list, func(a, b agentlink.Found) int {
		return cmp.Compare(rank(a.Name() == client), rank(b.Name() == client))
	})
	return list
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// look has agents tell the facts of their nodes, all at the same time.
func look(ctx context.Context, agents []agentlink.Found) []doctor.Node {
	nodes := make([]doctor.Node, len(agents))
	agentlink.Each(ctx, agents, func(i int) { nodes[i] = lookAt(ctx, agents[i]) })
	return nodes
}

// lookAt looks at one node: in its network namespace if that may be entered, else by its agent.
func lookAt(ctx context.Context, agent agentlink.Found) doctor.Node {
	n := doctor.Node{Name: agent.Name(), Probe: agentlink.Prober{Client: agent.Client}}
	if agent.IsLocal() {
		if ns, err := netns.OfProcess(agent.Status.PID); err == nil {
			n.Probe = probe.Prober{NS: ns} // open until the process ends
			err := ns.Do(func() error {
				n.Host = host.Read(ctx)
				return nil
			})
			if err == nil {
				return n
			}
		}
	}
	facts, err := agent.Host(ctx)
	if err == nil {
		n.Host = facts
	}
	return n
}

// announced asks nodes what they say of the Service's load balancer addresses.
func announced(ctx context.Context, e *doctor.Evidence, agents []agentlink.Found) {
	e.Announced, e.NoAnnounced = Announced(ctx, agents)
}

// Announced asks nodes what they say of load balancer addresses. missing says which of them
// didn't; "" if all did. Who has no right to ask other nodes knows nothing: that one node
// doesn't announce an address says nothing of the others.
func Announced(ctx context.Context, agents []agentlink.Found) (list []doctor.Announced, missing string) {
	told := make([][]doctor.Announced, len(agents))
	failed := make([]error, len(agents))
	agentlink.Each(ctx, agents, func(i int) {
		if failed[i] = agents[i].Err; failed[i] == nil {
			told[i], failed[i] = announcedBy(ctx, agents[i])
		}
	})
	for i := range agents {
		list = append(list, told[i]...)
		if failed[i] != nil {
			missing = fmt.Sprintf("%s: %v", agents[i].Name(), failed[i])
			if apierrors.IsForbidden(failed[i]) {
				return nil, missing
			}
		}
	}
	return list, missing
}

// announcedBy is what one node says.
func announcedBy(ctx context.Context, agent agentlink.Found) ([]doctor.Announced, error) {
	report, err := agent.Announced(ctx)
	if err != nil {
		return nil, err
	}
	// What holds for every address comes without one.
	list := []doctor.Announced{{Node: agent.Name(), WhyNot: report.Unfit, Off: report.Off, Rival: report.Rival}}
	for _, a := range report.Addresses {
		one := doctor.Announced{Address: a.Address, Node: agent.Name(), Owner: a.Owner, WhyNot: a.WhyNot}
		if !a.Since.IsZero() || len(a.Peers) > 0 {
			one.By = agent.Name()
		}
		list = append(list, one)
	}
	return list, nil
}

// resolvers reads the resolv.conf files of the pod that asks, on the node that it is on.
func resolvers(e *doctor.Evidence) {
	from := e.Report.From
	if from.Kind != "pod" || hostNetwork(e.Objects, from) {
		return
	}
	for _, n := range e.Nodes {
		if n.Probe != nil && (n.Name == "" || n.Name == from.Node) {
			e.Client = &doctor.Client{Resolvers: n.Probe.Resolvers(from.Addr)}
			return
		}
	}
}

// hostNetwork reports whether a pod is on its node's network, where the processes of
// many pods are.
func hostNetwork(o *explain.Objects, pod explain.Source) bool {
	p := o.Pod(pod.Namespace, pod.Name)
	return p == nil || p.Spec.HostNetwork
}
